"""Typed data of a build report: the parts of `<model>_report.json` that the HTML page shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from microfold.errors import InputError
from microfold.report.data import REPORT_VERSION
from microfold.report.decode import decode, read_json, refuse, shown
from microfold.support.frozen import frozen

# Fields have the names of `report.schema.json`, which describes them. Fields with defaults may be missing in
# reports of this version.


@frozen
class Origin:
    """File of the model."""

    file: str
    size: int
    sha256: str
    command: str


@frozen
class Settings:
    """Options that the page shows."""

    optimize: Literal["size", "balanced", "speed"]
    flash: int | None
    ram: int | None


@frozen
class Ram:
    """RAM, in bytes."""

    arena: int
    arena_bound: int
    state: int
    stack: int | None
    parts: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """Sum of all known parts, in bytes."""
        return self.arena + self.state + (self.stack or 0)


@frozen
class MemoryFill:
    """Usage of a memory of the target, in bytes."""

    name: str
    size: int = field(metadata={"minimum": 1})
    cycles: int = field(metadata={"minimum": 1})
    context: int
    constants: int
    loaded: int
    used: int


@frozen
class Flash:
    """Flash, in bytes."""

    weights: int
    code: int | None
    library: int | None
    padding: int | None

    @property
    def total(self) -> int:
        """Sum of all known parts, in bytes."""
        return self.weights + (self.code or 0) + (self.library or 0) + (self.padding or 0)


@frozen
class Tensor:
    """Type of a tensor."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@frozen
class Port(Tensor):
    """Input or output of the model."""

    name: str
    bytes: int


@frozen
class Candidate:
    """Kernel that supports a layer."""

    kernel: str
    estimated_instructions: int


@frozen
class Refusal:
    """Kernels that do not support a layer, for one reason."""

    reason: str
    kernels: tuple[str, ...]


@frozen
class Accumulator:
    """Bounds of a layer's sums."""

    low: int = field(metadata={"minimum": None})
    high: int = field(metadata={"minimum": None})
    largest_partial: int
    type_bits: Literal[32, 64] = 32


@frozen
class Layer:
    """Call of a kernel."""

    name: str
    tensor: str
    op: str
    fused: tuple[str, ...]
    kernel: str
    candidates: tuple[Candidate, ...]
    macs: int
    estimated_instructions: int | None
    instructions: int | None
    estimated_cycles: int | None
    scratch: int
    weights: int
    output: Tensor
    accumulator: Accumulator | None
    accumulator_bits: int | None
    refused: tuple[Refusal, ...] = ()


@frozen
class End:
    """End of an edge."""

    kind: Literal["input", "layer", "state", "output"]
    index: int


@frozen
class Edge:
    """A value between its source and one reader."""

    source: End = field(metadata={"key": "from"})
    reader: End = field(metadata={"key": "to"})
    tensor: str
    bytes: int


@frozen
class Block:
    """Bytes of the arena, and the layers during which they are alive."""

    name: str
    offset: int
    bytes: int
    first_layer: int
    last_layer: int
    kind: Literal["input", "result", "scratch", "constants"] = "result"

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.offset + self.bytes


@frozen
class Removed:
    """Channels that are not computed, for one reason and one range of values."""

    reason: str
    low: int = field(metadata={"minimum": None})
    high: int = field(metadata={"minimum": None})
    channels: tuple[int, ...]


@frozen
class PrunedValue:
    """Value from which channels were removed."""

    op: str
    tensor: str
    channels: int
    removed: tuple[Removed, ...]


@frozen
class Pruned:
    """Channels that one run of the pruning pass has removed."""

    graph: str
    macs_before: int
    macs_after: int
    channels: int
    values: tuple[PrunedValue, ...]


@frozen
class Accumulators:
    """Overflow proof of all sums."""

    proved: bool
    largest_bits: int
    unproved_layers: tuple[str, ...]
    wrapping_layers: tuple[str, ...]


@frozen
class Library:
    """Library with which the code must be linked."""

    name: str
    functions: tuple[str, ...]


@frozen
class Change:
    """Change by relaxed numerics."""

    where: str
    change: str


@frozen
class Relaxed:
    """Changes that are not bit-exact."""

    changes: tuple[Change, ...]


@frozen
class Sliding:
    """Runs that read only new frames."""

    frames: int = field(metadata={"minimum": 2})
    step: int = field(metadata={"minimum": 1})
    macs: int
    window_macs: int


@frozen
class Window:
    """Line buffer of a tensor."""

    tensor: str
    offset: int
    rows: int = field(metadata={"minimum": 1})
    bytes: int = field(metadata={"minimum": 1})
    rows_per_call: int = field(metadata={"minimum": 1})
    whole: int | None = field(default=None, metadata={"minimum": 1})
    kept: Literal["window", "ring", "carried"] = "window"
    apart: int = 0


@frozen
class Rows:
    """Streamed layers, which are computed row by row."""

    layers: int = field(metadata={"minimum": 1})
    longest_push: int | None
    moved: int
    windows: tuple[Window, ...]
    longest_push_cycles: int | None = None


@frozen
class BuildReport:
    """Report of a build."""

    microfold_version: str
    build_id: str | None
    origin: Origin | None
    model: str
    target: str
    options: Settings
    macs: int
    estimated_instructions: int | None
    instructions: int | None
    estimated_cycles: int | None
    cycles_source: str | None
    cycles_error: int | None
    ram: Ram
    flash: Flash
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    layers: tuple[Layer, ...]
    edges: tuple[Edge, ...]
    blocks: tuple[Block, ...]
    libraries: tuple[Library, ...]
    accumulators: Accumulators
    pruned: tuple[Pruned, ...]
    relaxed: Relaxed | None
    needs: tuple[str, ...] = ()
    memories: tuple[MemoryFill, ...] = ()
    sliding: Sliding | None = None
    stream: Rows | None = field(default=None, metadata={"key": "rows"})

    @property
    def time(self) -> int | None:
        """Instructions of one run: executed ones if they were counted, else estimated ones."""
        return self.instructions if self.instructions is not None else self.estimated_instructions


def load_report(path: Path) -> BuildReport:
    """Return the report that build or bench has written to a file.

    Raises:
        InputError: the file is not a report, or has a version that cannot be read.
    """
    return read_report(read_json(path), str(path))


def read_report(data: Any, source: str) -> BuildReport:
    """Return a report from plain data.

    Args:
        source: name of the data in error messages.

    Raises:
        InputError: the data is not a report, or has a version that cannot be read.
    """
    version = data.get("report_version") if isinstance(data, dict) else None
    if version != REPORT_VERSION:
        raise InputError(
            f"{source} must be a report of `microfold build` or `bench --json`, with report_version "
            f"{REPORT_VERSION}; got {'none' if version is None else shown(version)}: "
            "build the model again"
        )
    report = decode(BuildReport, data, source)
    refuse(source, list(_contradictions(report)))
    return report


def _contradictions(report: BuildReport) -> Iterator[str]:
    """Yield faults of indices that are out of range."""
    counts = {"input": len(report.inputs), "output": len(report.outputs), "layer": len(report.layers)}
    for i, edge in enumerate(report.edges):
        for name, end in (("from", edge.source), ("to", edge.reader)):
            if end.index >= counts.get(end.kind, len(report.edges)):
                yield f"$.edges[{i}].{name} must be an existing end; it is {end.kind} {end.index}"
    for i, block in enumerate(report.blocks):
        if not block.first_layer <= block.last_layer < len(report.layers):
            yield (
                f"$.blocks[{i}] must be alive during existing layers; "
                f"it is from {block.first_layer} to {block.last_layer}"
            )
    for i, value in enumerate(v for pruned in report.pruned for v in pruned.values):
        if any(c >= value.channels for removed in value.removed for c in removed.channels):
            yield f"removed channels of pruned value {i} must be below its channel count, {value.channels}"
