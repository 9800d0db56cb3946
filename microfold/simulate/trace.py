"""Executed instructions, block by block, and the cycles that a timing table gives for them.

The image runs once more under a QEMU plugin that counts how often each block of instructions was executed,
how often it was entered by a jump, and from where. The estimate knows nothing of flash wait states, caches
and buses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from microfold.errors import ToolError
from microfold.simulate.memory import PlacedSection
from microfold.simulate.thumb import Instruction, Kind, instructions
from microfold.simulate.toolchain import find_tool
from microfold.support import resources
from microfold.support.elf import Code
from microfold.support.frozen import frozen
from microfold.support.scratch import scratch_folder
from microfold.support.tools import run_tool
from microfold.target.timing import Timing

_HOST_COMPILER = "cc"
# Versions of the plugin interface in which the few calls used are the same; each QEMU takes some of them.
_PLUGIN_VERSIONS = (1, 2, 3, 4, 5)
_BUILD_SECONDS = 60.0
COUNTS = "counts.txt"
# Bytes after which QEMU ends blocks on these cores.
_PAGE = 1024
_SINGLE = frozenset({Kind.LOAD, Kind.STORE, Kind.STORE_INDEXED})


@frozen
class Trace:
    """What one run of a model executed.

    Attributes:
        instructions: of each layer; what comes behind the last layer is a last entry.
        cycles: likewise, by the timing table or on the pipeline.
        least: of these, what is left if no instruction waits for another one: what it takes to issue them, or
            what the busiest unit takes.
    """

    instructions: tuple[int, ...]
    cycles: tuple[int, ...]
    least: tuple[int, ...]


# A block of instructions: its address, and its bytes as QEMU counts them.
Key = tuple[int, int]


@dataclass
class LayerCounts:
    """What ran in a layer.

    Attributes:
        blocks: how many instructions each has, how often it ran, and how often it was entered by a jump.
        edges: how often the second block ran behind the first.
    """

    blocks: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    edges: dict[tuple[Key, Key], int] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        return sum(number * count for number, count, _ in self.blocks.values())


def plugin_arguments(
    sections: Sequence[PlacedSection], name: str, harness: Sequence[str], *, edges: bool = False
) -> list[str]:
    """What the plugin is told of an image: addresses of functions that have sections of their own.

    Args:
        name: of the model.
        harness: object files whose code does not count.
        edges: whether to count which block ran behind which.
    """
    text = [section for section in sections if section.output == ".text"]
    named = {section.name.removeprefix(".text."): section for section in text}
    arguments = [f"run={named[f'{name}_run'].address:#x}", f"stop={_span(named['time_run'])}"]
    if "simulate_layer_done" in named:
        arguments.append(f"mark={named['simulate_layer_done'].address:#x}")
    arguments += ["edges=1"] if edges else []
    return arguments + [f"skip={_span(section)}" for section in text if section.file in harness]


def _span(section: PlacedSection) -> str:
    return f"{section.address:#x}-{section.address + section.size:#x}"


def with_plugin(folder: Path, arguments: Sequence[str], run: Callable[[str], None]) -> None:
    """Builds the plugin and runs an image with it; `COUNTS` in the folder has the counts then.

    Args:
        run: runs the image; takes QEMU's option for the plugin.
    Raises:
        ToolError: this machine has no C compiler, QEMU takes no such plugin, or the run fails.
    """
    refusal: ToolError | None = None
    for version in _PLUGIN_VERSIONS:
        library = folder / f"trace{version}.so"
        library.write_bytes(_plugin(version))
        try:
            run(",".join([f"file={library}", *arguments, f"out={folder / COUNTS}"]))
        except ToolError as error:
            if "version" not in str(error).lower():
                raise
            refusal = error
        else:
            return
    raise ToolError(f"QEMU takes none of the plugin's versions: {refusal}")


@cache
def _plugin(version: int) -> bytes:
    """The plugin, built once for all runs of a process."""
    source = resources.template_dir() / "simulate" / "trace.c"
    with scratch_folder() as folder:
        library = folder / "trace.so"
        command = [find_tool(_HOST_COMPILER), "-O2", "-shared", "-fPIC", f"-DPLUGIN_VERSION={version}"]
        done = run_tool(
            [*command, str(source), "-o", str(library)], folder, _BUILD_SECONDS, "building the plugin"
        )
        if done.returncode != 0:
            raise ToolError(f"building QEMU's plugin failed: {done.stderr.strip()[-500:]}")
        return library.read_bytes()


def read_counts(text: str) -> Iterator[list[LayerCounts]]:
    """The layers of each run, from what the plugin wrote; what comes behind the last layer is a last one.

    Raises:
        ToolError: it is not what the plugin writes.
    """
    layers: dict[int, LayerCounts] = {}
    for line in text.splitlines():
        if line == "end":
            yield [layers.get(index, LayerCounts()) for index in range(max(layers, default=-1) + 1)]
            layers = {}
            continue
        numbers = line.removesuffix(" edge").split()
        if len(numbers) != 6 or not all(number.isdecimal() for number in numbers):
            raise ToolError(f"QEMU's plugin must write six numbers a line; it wrote {line[:80]!r}")
        layer, *figures = map(int, numbers)
        _count(layers.setdefault(layer, LayerCounts()), figures, edge=line.endswith("edge"))


def _count(layer: LayerCounts, figures: list[int], *, edge: bool) -> None:
    """Code that QEMU translated twice comes twice."""
    first, second, third, fourth, count = figures
    if edge:
        key = ((first, second), (third, fourth))
        layer.edges[key] = layer.edges.get(key, 0) + count
    else:
        _, before, entered = layer.blocks.get((first, second), (0, 0, 0))
        layer.blocks[first, second] = (third, before + fourth, entered + count)


def timed(layers: Iterable[LayerCounts], code: Code, timing: Timing) -> Trace:
    """The cycles of a run by a timing table."""
    blocks: dict[Key, list[Instruction]] = {}
    costs: dict[tuple[Key, int], int] = {}
    least_costs: dict[Key, int] = {}

    def block(key: Key, number: int) -> list[Instruction]:
        if key not in blocks:
            address, size = key
            # QEMU counts only half of a last instruction that goes on in another page.
            blocks[key] = list(itertools.islice(instructions(code.at(address, size + 2)), number))
        return blocks[key]

    def least_cost(key: Key, number: int) -> int:
        if key not in least_costs:
            least_costs[key] = least_cycles(block(key, number), timing)
        return least_costs[key]

    def cost(key: Key, number: int, loaded: int) -> int:
        if (key, loaded) not in costs:
            costs[key, loaded] = block_cycles(block(key, number), timing, loaded)
        return costs[key, loaded]

    cycles: list[int] = []
    least: list[int] = []
    layers = list(layers)
    for each in layers:
        ends = {key: block(key, number)[-1] for key, (number, _, _) in each.blocks.items()}
        # QEMU cuts blocks at the ends of pages, too: what runs on there is as if it had not.
        loaded = {
            address + size + half: last.target
            for (address, size), last in ends.items()
            if last.kind is Kind.LOAD
            for half in ((0, 2) if (address + size) % _PAGE == 0 else (0,))
        }
        total = unhindered = 0
        for key, (number, count, entered) in each.blocks.items():
            jumps = min(entered, count)
            total += (count - jumps) * cost(key, number, loaded.get(key[0], -1))
            total += jumps * cost(key, number, -1) + timing.taken * entered
            unhindered += least_cost(key, number) * count
        cycles.append(total)
        least.append(unhindered)
    return Trace(tuple(each.instructions for each in layers), tuple(cycles), tuple(least))


def block_cycles(block: Iterable[Instruction], timing: Timing, loaded: int = -1) -> int:
    """Cycles of instructions that run one after the other, the last one not jumping.

    Args:
        loaded: the register that the instruction before them loaded, if it was a single load.
    """
    total = 0
    for instruction in block:
        behind_load = instruction.kind in _SINGLE and loaded >= 0 and instruction.base != loaded
        total += timing.next_transfer if behind_load else _cycles(instruction, timing)
        loaded = instruction.target if instruction.kind is Kind.LOAD else -1
    return total


def least_cycles(block: Iterable[Instruction], timing: Timing) -> int:
    """Cycles of instructions, were every single transfer right behind a load."""
    return sum(
        min(timing.next_transfer, _cycles(each, timing)) if each.kind in _SINGLE else _cycles(each, timing)
        for each in block
    )


def _cycles(instruction: Instruction, timing: Timing) -> int:
    if instruction.kind is Kind.MULTIPLE:
        return timing.multiple + instruction.words
    return getattr(timing, instruction.kind.value)
