"""A build's report as typed data: what the page shows of `<model>_report.json`, stored or just made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from microfold.errors import InputError
from microfold.report.data import REPORT_VERSION
from microfold.report.decode import decode, read_json, refuse, shown
from microfold.support.frozen import frozen

# Fields are called as in `report.schema.json`, which says what they are. Those with defaults are not in every
# report of this version.


@frozen
class Origin:
    """The model's file."""

    file: str
    size: int
    sha256: str
    command: str


@frozen
class Settings:
    """The options that the page names."""

    optimize: Literal["size", "balanced", "speed"]
    flash: int | None
    ram: int | None


@frozen
class Ram:
    """Bytes."""

    arena: int
    arena_bound: int
    state: int
    stack: int | None
    parts: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """What is known of it."""
        return self.arena + self.state + (self.stack or 0)


@frozen
class MemoryFill:
    """A memory of the target; bytes."""

    name: str
    size: int = field(metadata={"minimum": 1})
    cycles: int = field(metadata={"minimum": 1})
    context: int
    constants: int
    loaded: int
    used: int


@frozen
class Flash:
    """Bytes."""

    weights: int
    code: int | None
    library: int | None
    padding: int | None

    @property
    def total(self) -> int:
        """What is known of it."""
        return self.weights + (self.code or 0) + (self.library or 0) + (self.padding or 0)


@frozen
class Tensor:
    """A type."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@frozen
class Port(Tensor):
    """An input or output."""

    name: str
    bytes: int


@frozen
class Candidate:
    """A kernel that could compute a layer."""

    kernel: str
    estimated_instructions: int


@frozen
class Refusal:
    """Kernels that cannot, for one reason."""

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
    """A call of a kernel."""

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
    """Of an edge."""

    kind: Literal["input", "layer", "state", "output"]
    index: int


@frozen
class Edge:
    """Who reads what."""

    source: End = field(metadata={"key": "from"})
    reader: End = field(metadata={"key": "to"})
    tensor: str
    bytes: int


@frozen
class Block:
    """Bytes of the arena, and the layers during which they must hold."""

    name: str
    offset: int
    bytes: int
    first_layer: int
    last_layer: int
    kind: Literal["input", "result", "scratch", "constants"] = "result"

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.bytes


@frozen
class Removed:
    """Channels that are not computed, for one reason."""

    reason: str
    low: int = field(metadata={"minimum": None})
    high: int = field(metadata={"minimum": None})
    channels: tuple[int, ...]


@frozen
class PrunedValue:
    """A value that has lost channels."""

    op: str
    tensor: str
    channels: int
    removed: tuple[Removed, ...]


@frozen
class Pruned:
    """What one run of the pruning pass removed."""

    graph: str
    macs_before: int
    macs_after: int
    channels: int
    values: tuple[PrunedValue, ...]


@frozen
class Accumulators:
    """What is proved of all sums."""

    proved: bool
    largest_bits: int
    unproved_layers: tuple[str, ...]
    wrapping_layers: tuple[str, ...]


@frozen
class Library:
    """What the code must be linked with."""

    name: str
    functions: tuple[str, ...]


@frozen
class Change:
    """Of relaxed numerics."""

    where: str
    change: str


@frozen
class Relaxed:
    """What is not the same bits as the model's."""

    changes: tuple[Change, ...]


@frozen
class Sliding:
    """Of runs that take new frames only."""

    frames: int = field(metadata={"minimum": 2})
    step: int = field(metadata={"minimum": 1})
    macs: int
    window_macs: int


@frozen
class Window:
    """Where rows of a tensor are kept."""

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
    """What is computed row by row."""

    layers: int = field(metadata={"minimum": 1})
    longest_push: int | None
    moved: int
    windows: tuple[Window, ...]
    longest_push_cycles: int | None = None


@frozen
class BuildReport:
    """A whole report."""

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
    """The report that a build or bench has stored.

    Raises:
        InputError: the file is none, or one that this version does not read.
    """
    return read_report(read_json(path), str(path))


def read_report(data: Any, source: str) -> BuildReport:
    """A report from plain data.

    Args:
        source: what errors call it.

    Raises:
        InputError: it is none, or one that this version does not read.
    """
    version = data.get("report_version") if isinstance(data, dict) else None
    if version != REPORT_VERSION:
        raise InputError(
            f"{source} must be a report of `microfold build` or `bench --json`, with report_version "
            f"{REPORT_VERSION}; it has {'none' if version is None else shown(version)}: "
            "build the model again"
        )
    report = decode(BuildReport, data, source)
    refuse(source, list(_contradictions(report)))
    return report


def _contradictions(report: BuildReport) -> Iterator[str]:
    """Indices that point at nothing."""
    counts = {"input": len(report.inputs), "output": len(report.outputs), "layer": len(report.layers)}
    for i, edge in enumerate(report.edges):
        for name, end in (("from", edge.source), ("to", edge.reader)):
            if end.index >= counts.get(end.kind, len(report.edges)):
                yield f"$.edges[{i}].{name} must be an end that there is; it is {end.kind} {end.index}"
    for i, block in enumerate(report.blocks):
        if not block.first_layer <= block.last_layer < len(report.layers):
            yield (
                f"$.blocks[{i}] must live during layers that there are; "
                f"it does from {block.first_layer} to {block.last_layer}"
            )
    for i, value in enumerate(v for pruned in report.pruned for v in pruned.values):
        if any(c >= value.channels for removed in value.removed for c in removed.channels):
            yield f"pruned value {i} must lose channels that it has; it has {value.channels}"
