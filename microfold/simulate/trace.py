"""Counts of executed instruction blocks, and their cycles by a timing table.

The image runs under a QEMU plugin that counts the executions of each block of instructions, its entries by
jumps, and optionally the transitions between blocks. The estimate excludes flash wait states, caches and
buses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from msgspec import Struct

from microfold.errors import ToolError
from microfold.simulate.memory import PlacedSection
from microfold.simulate.thumb import InstructionKind, ThumbInstruction, instructions
from microfold.simulate.toolchain import find_tool
from microfold.support import resources
from microfold.support.elf import Code
from microfold.support.scratch import scratch_folder
from microfold.support.tools import run_tool
from microfold.target.timing import CoreTiming

_HOST_COMPILER = "cc"
# Versions of the plugin interface with the calls that are used here. Each QEMU accepts some of them.
_PLUGIN_VERSIONS = (1, 2, 3, 4, 5)
_BUILD_SECONDS = 60.0
COUNTS = "counts.txt"
# Page size, in bytes. QEMU ends blocks at page boundaries on these cores.
_PAGE = 1024
_SINGLE = frozenset({InstructionKind.LOAD, InstructionKind.STORE, InstructionKind.STORE_INDEXED})


class Trace(Struct, frozen=True):
    """Instructions and cycles of one run of a model.

    Attributes:
        instructions: instructions of each layer, followed by those after the last layer.
        cycles: cycles by the timing table or the pipeline, with the same entries.
        least: lower bound of the cycles if no instruction waits for another one: the cycles to issue all
            instructions, or of the busiest unit.
    """

    instructions: tuple[int, ...]
    cycles: tuple[int, ...]
    least: tuple[int, ...]


# Block of instructions: its address, and its size in bytes as counted by QEMU.
Key = tuple[int, int]


@dataclass
class LayerCounts:
    """Execution counts of a layer.

    Attributes:
        blocks: number of instructions, executions and entries by a jump, for each block.
        edges: number of transitions from the first block to the second.
    """

    blocks: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    edges: dict[tuple[Key, Key], int] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        return sum(number * count for number, count, _ in self.blocks.values())


def plugin_arguments(
    sections: Sequence[PlacedSection], name: str, harness: Sequence[str], *, edges: bool = False
) -> list[str]:
    """Return the arguments of the plugin for an image: addresses of functions, each with its own section.

    Args:
        harness: object files whose code is not counted.
        edges: whether to count transitions between blocks.
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
    """Build the plugin and run an image with it. The counts are then in the file `COUNTS` in the folder.

    Args:
        run: function that runs the image with a QEMU option for the plugin.
    Raises:
        ToolError: this machine has no C compiler, QEMU rejects the plugin, or the run fails.
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
    raise ToolError(f"QEMU accepts none of the plugin's versions: {refusal}")


@cache
def _plugin(version: int) -> bytes:
    """Build the plugin, once for all runs of a process."""
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
    """Yield the counts of all layers for each run, followed by the counts after the last layer.

    Raises:
        ToolError: the text is not the output of the plugin.
    """
    layers: dict[int, LayerCounts] = {}
    for line in text.splitlines():
        if line == "end":
            yield [layers.get(index, LayerCounts()) for index in range(max(layers, default=-1) + 1)]
            layers = {}
            continue
        numbers = line.removesuffix(" edge").split()
        if len(numbers) != 6 or not all(number.isdecimal() for number in numbers):
            raise ToolError(f"QEMU's plugin must write six numbers per line; it wrote {line[:80]!r}")
        layer, *figures = map(int, numbers)
        _count(layers.setdefault(layer, LayerCounts()), figures, edge=line.endswith("edge"))


def _count(layer: LayerCounts, figures: list[int], *, edge: bool) -> None:
    """Add the figures of a line. Code that QEMU has translated twice occurs in two lines."""
    first, second, third, fourth, count = figures
    if edge:
        key = ((first, second), (third, fourth))
        layer.edges[key] = layer.edges.get(key, 0) + count
    else:
        _, before, entered = layer.blocks.get((first, second), (0, 0, 0))
        layer.blocks[first, second] = (third, before + fourth, entered + count)


def timed(layers: Iterable[LayerCounts], code: Code, timing: CoreTiming) -> Trace:
    """Return instructions and cycles of a run by a timing table."""
    blocks: dict[Key, list[ThumbInstruction]] = {}
    costs: dict[tuple[Key, int], int] = {}
    least_costs: dict[Key, int] = {}

    def block(key: Key, number: int) -> list[ThumbInstruction]:
        if key not in blocks:
            address, size = key
            # QEMU counts only half of a last instruction that crosses a page boundary.
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
        # QEMU also splits blocks at page boundaries. A load before the boundary affects the next block.
        loaded = {
            address + size + half: last.target
            for (address, size), last in ends.items()
            if last.kind is InstructionKind.LOAD
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


def block_cycles(block: Iterable[ThumbInstruction], timing: CoreTiming, loaded: int = -1) -> int:
    """Return the cycles of consecutive instructions, without a jump at the end.

    Args:
        loaded: register that a single load right before them has loaded, or -1.
    """
    total = 0
    for instruction in block:
        behind_load = instruction.kind in _SINGLE and loaded >= 0 and instruction.base != loaded
        total += timing.next_transfer if behind_load else _cycles(instruction, timing)
        loaded = instruction.target if instruction.kind is InstructionKind.LOAD else -1
    return total


def least_cycles(block: Iterable[ThumbInstruction], timing: CoreTiming) -> int:
    """Return a lower bound of the cycles: as if every single transfer directly followed a load."""
    return sum(
        min(timing.next_transfer, _cycles(each, timing)) if each.kind in _SINGLE else _cycles(each, timing)
        for each in block
    )


def _cycles(instruction: ThumbInstruction, timing: CoreTiming) -> int:
    if instruction.kind is InstructionKind.MULTIPLE:
        return timing.multiple + instruction.words
    return getattr(timing, instruction.kind.value)
