"""Report data of streamed layers, which are computed row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from microfold.plan.stream.operations import ReceiveRow, RowsCall
from microfold.plan.stream.row_node import pitch
from microfold.plan.stream.windows import RegionSchedule
from microfold.program import Layer, Program
from microfold.reporting.schema import ReportedStreaming, ReportedWindow

# Function that returns the estimated cost of a layer in a run.
Estimate = Callable[[Layer], int | None]


def instructions(layer: Layer) -> int | None:
    """Return the estimated instructions of a layer; None without an estimate."""
    return layer.estimated_instructions


def cycles(layer: Layer) -> int | None:
    """Return the estimated cycles of a layer; None without an estimate."""
    return layer.estimated_cycles


def pushes(program: Program, estimated: Estimate) -> list[int | None]:
    """Return the estimated cost of each push of an input row; None if a layer has no estimate.

    The first push also runs the layers that need no row, and the last push all layers after the rows.
    """
    now: list[int | None] = []
    found: list[int | None] = []
    started = False
    for takes_row, index in _steps(program):
        if takes_row:
            if started:
                found.append(_sum(now))
                now = []
            started = True
        if index is not None:
            layer = program.layers[index]
            calls = _calls(program, index)
            estimate = estimated(layer)
            now.append(estimate // calls if estimate is not None else None)
    return [*found, _sum(now)]


def longest(program: Program, estimated: Estimate) -> int | None:
    """Return the estimated cost of the longest push of a row, or None if a layer has no estimate."""
    estimates = pushes(program, estimated)
    known = [each for each in estimates if each is not None]
    return max(known) if known and len(known) == len(estimates) else None


def rows_report(program: Program) -> ReportedStreaming | None:
    """Return the report of streamed layers and their line buffers, or None without streamed layers."""
    stream = program.stream
    if stream is None:
        return None
    timeline = stream.timeline
    producers = {value: node for region in timeline.regions for value, node in region.producers.items()}
    rings = {value for region in timeline.regions for value in region.rings}
    carried = {value for region in timeline.regions for value in region.carried}
    newest = timeline.newest_blocks
    return ReportedStreaming(
        layers=sum(layer.rows is not None for layer in program.layers),
        longest_push=longest(program, instructions),
        longest_push_cycles=longest(program, cycles),
        moved=stream.moved,
        windows=tuple(
            ReportedWindow(
                tensor=value.name,
                offset=stream.windows[value],
                rows=block.size // pitch(value),
                bytes=block.size,
                whole=value.type.nbytes,
                rows_per_call=producers[value].width if value in producers else 1,
                kept="ring" if value in rings else "carried" if value in carried else "window",
                apart=newest[value].size if value in newest else 0,
            )
            for value, block in timeline.window_blocks.items()
        ),
    )


def _steps(program: Program) -> Iterator[tuple[bool, int | None]]:
    """Yield the steps of a run: whether a step consumes an input row, and the index of the called layer."""
    stream = program.stream
    if stream is None:
        return
    for part in stream.timeline.parts:
        if not isinstance(part, RegionSchedule):
            yield from ((False, index) for index in part)
            continue
        for operation in part.all_operations:
            if isinstance(operation, ReceiveRow):
                yield True, None
            elif isinstance(operation, RowsCall):
                yield False, stream.layer_of(operation)


def _calls(program: Program, index: int) -> int:
    """Return the number of calls of a layer in a run."""
    assert program.stream is not None
    return len(program.stream.timeline.planned[index].moments)


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
