"""What a program says of the rows that it is handed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from microfold.plan.stream.operations import Arrive, RowsCall
from microfold.plan.stream.region import pitch
from microfold.program import Program


def pushes(program: Program) -> list[int | None]:
    """Estimated instructions of each call that takes a row; None where a layer has no estimate.

    The last one runs all layers that do not work by rows.
    """
    rest = [layer.estimated_instructions for layer in program.layers if layer.rows is None]
    found = [*_streamed(program)]
    return [*found[:-1], *(_sum([each, *rest]) for each in found[-1:])]


def longest(program: Program) -> int | None:
    """Estimated instructions of the longest of these calls; None where some layer has no estimate."""
    estimates = pushes(program)
    known = [each for each in estimates if each is not None]
    return max(known) if known and len(known) == len(estimates) else None


def rows_report(program: Program) -> dict[str, Any] | None:
    """What is computed row by row, and what it takes; None: nothing is."""
    stream = program.stream
    if stream is None:
        return None
    region, windows = stream.planner.region, stream.planner.windows
    return {
        "layers": len(stream.planner.bands),
        "longest_push": longest(program),
        "moved": windows.moved,
        "windows": [
            {
                "tensor": value.name,
                "offset": offset,
                "rows": windows.blocks[value].size // pitch(value),
                "bytes": windows.blocks[value].size,
                "rows_per_call": region.producers[value].width if value in region.producers else 1,
            }
            for value, offset in stream.windows.items()
        ],
    }


def _streamed(program: Program) -> Iterator[int | None]:
    """The same without the layers behind."""
    if program.stream is None:
        return
    now: list[int | None] = []
    started = False
    for operation in program.stream.planner.windows.all_operations:
        if isinstance(operation, Arrive):
            if started:
                yield _sum(now)
            started, now = True, []
        elif isinstance(operation, RowsCall):
            index = program.stream.layer_of(operation)
            estimate = program.layers[index].estimated_instructions
            calls = len(program.stream.planner.bands[index].events)
            now.append(estimate // calls if estimate is not None else None)
    yield _sum(now)


def _sum(parts: list[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
