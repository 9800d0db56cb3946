"""Verification of a streamed model's plan: its streams, and all calls between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from microfold.kernels.kernel import Kernel
from microfold.plan.arena import ArenaPlan
from microfold.plan.check import check_plan
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.plan.stream.check import Computing, check_stream
from microfold.plan.stream.memory import StreamMemory
from microfold.plan.stream.operations import RowsCall


def computing_of(memory: StreamMemory, kernels: Sequence[Kernel]) -> Callable[[RowsCall], Computing]:
    """Return a function from calls to the kernel, layer and scratch memory that the checker needs."""

    def of(call: RowsCall) -> Computing:
        index = memory.layer_of(call)
        scratch = memory.scratch.get(index)
        place = (memory.arena.offsets[scratch], scratch.size) if scratch is not None else (0, 0)
        return Computing(memory.timeline.planned[index].layer, kernels[index], place)

    return of


def check_memory(memory: StreamMemory, kernels: Sequence[Kernel]) -> None:
    """Verify the streams, and all calls between them, with checkers that are independent of the planner.

    Raises:
        GraphError: the plan is wrong.
    """
    timeline, offsets = memory.timeline, memory.arena.offsets
    computing = computing_of(memory, kernels)
    for windows, start, end in timeline.streams:
        region = windows.region
        inside = {timeline.window_blocks[value] for value in windows.blocks}
        kept = [
            (each.label, offsets[each], each.size)
            for each in timeline.blocks.values()
            if each not in inside and each.first < start and each.last >= end
        ]
        check_stream(
            windows.all_operations,
            memory.windows,
            memory.size,
            computing,
            {value: memory.address(value) for value in (*region.fronts, *region.outlives)},
            {value: memory.address(value) for value in region.sources},
            kept,
            memory.newest,
        )
    _check_calls(memory)


def _check_calls(memory: StreamMemory) -> None:
    """Verify the calls on whole tensors. Streams have been verified by replay, and take no time here."""
    timeline = memory.timeline
    plain: dict[Storage, Storage] = {}
    scratch = [b for index, b in memory.scratch.items() if timeline.planned[index].call is not None]
    for each in dict.fromkeys((*timeline.blocks.values(), *scratch)):
        first, last = each.first, each.last
        for _, start, end in timeline.streams:
            first = end - 1 if start <= first < end else first
            last = start if start <= last < end else last
        if first <= last:
            plain[each] = Storage(each.label, each.size, first, last)
    overlaps = tuple(
        Overlap(plain[o.source], plain[o.target], o.distance, o.exact)
        for o in memory.arena.overlaps
        if o.source in plain and o.target in plain
    )
    offsets = {plain[each]: offset for each, offset in memory.arena.offsets.items() if each in plain}
    check_plan(
        [*plain.values()],
        ArenaPlan(offsets, memory.arena.size, memory.arena.bound, overlaps),
        timeline.alignment,
    )
