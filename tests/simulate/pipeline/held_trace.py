"""Traces in files: what ran in some layers, block by block, and how it is disassembled.

A line each, addresses in hexadecimal digits, counts in decimal ones:

    layer NAME
    block ADDRESS BYTES INSTRUCTIONS RUNS ENTERED
    edge ADDRESS BYTES ADDRESS BYTES RUNS
    ADDRESS: SIZE MNEMONIC OPERANDS

as in `microfold.simulate.trace.LayerCounts`, whose keys are addresses and bytes. What stands in a block is
at the end of the file, once for all layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from microfold.simulate.trace import LayerCounts

FOLDER = Path(__file__).parent / "traces"


class HeldTrace(Struct, frozen=True):
    """A trace.

    Attributes:
        layers: by name.
        lines: size, mnemonic and operands by address, as `Disassembly` takes them.
    """

    layers: dict[str, LayerCounts] = field(default_factory=dict)
    lines: dict[int, tuple[int, str, str]] = field(default_factory=dict)


def read(path: Path) -> HeldTrace:
    found = HeldTrace()
    layer = LayerCounts()
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "layer":
            layer = found.layers.setdefault(rest, LayerCounts())
        elif kind == "block":
            address, *numbers = rest.split()
            size, count, runs, entered = map(int, numbers)
            layer.blocks[int(address, 16), size] = (count, runs, entered)
        elif kind == "edge":
            start, start_size, end, end_size, runs = rest.split()
            edge = (int(start, 16), int(start_size)), (int(end, 16), int(end_size))
            layer.edges[edge] = int(runs)
        elif kind.endswith(":"):
            size, mnemonic, *operands = rest.split(" ", 2)
            found.lines[int(kind[:-1], 16)] = (int(size), mnemonic, "".join(operands))
    return found


def written(layers: Mapping[str, LayerCounts], lines: Mapping[int, tuple[int, str, str]]) -> Iterator[str]:
    """The lines of a file; of `lines`, those that some block has."""
    executed: set[int] = set()
    for name, layer in layers.items():
        yield f"layer {name}"
        for (address, size), numbers in sorted(layer.blocks.items()):
            yield f"block {address:x} {size} {' '.join(map(str, numbers))}"
            for _ in range(numbers[0]):
                executed.add(address)
                address += lines[address][0]
        for ((start, start_size), (end, end_size)), runs in sorted(layer.edges.items()):
            yield f"edge {start:x} {start_size} {end:x} {end_size} {runs}"
    for address in sorted(executed):
        size, mnemonic, operands = lines[address]
        yield f"{address:x}: {size} {mnemonic} {operands}".rstrip()
