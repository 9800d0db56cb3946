"""Placement of very many storages in the order of time, like a memory allocator.

Free holes are indexed by size. Each storage gets the smallest hole that fits, or a part of a dying input, if
the kernel allows that. The placement needs O(n log n) steps, however many storages are alive at once.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap, align


def place_in_time(blocks: Sequence[Storage], overlaps: Sequence[Overlap]) -> tuple[dict[Storage, int], int]:
    """Return the offsets and the arena size in bytes. For arguments see `microfold.plan.arena.plan_arena`."""
    allowed: dict[Storage, list[Overlap]] = {}
    for overlap in overlaps:
        allowed.setdefault(overlap.target, []).append(overlap)
    offsets: dict[Storage, int] = {}
    # Bytes that a storage frees: less than its size if an output has taken a part of it.
    left: dict[Storage, list[tuple[int, int]]] = {}
    dying: list[tuple[int, int, Storage]] = []
    holes = _Holes()
    for index, block in enumerate(sorted(blocks, key=lambda b: (b.first, -b.size))):
        while dying and dying[0][0] < block.first:
            _, _, dead = heapq.heappop(dying)
            for begin, end in left.pop(dead):
                holes.free(begin, end)
        size = align(block.size)
        source, offset = _within_input(block, allowed.get(block, ()), offsets, left)
        if source is not None:
            ((begin, end),) = left[source]
            left[source] = [(begin, offset), (offset + size, end)]
        else:
            offset = holes.take(size)
        offsets[block] = offset
        left[block] = [(offset, offset + size)]
        heapq.heappush(dying, (block.last, index, block))
    return offsets, holes.top


def _within_input(
    block: Storage,
    overlaps: Sequence[Overlap],
    offsets: dict[Storage, int],
    left: dict[Storage, list[tuple[int, int]]],
) -> tuple[Storage | None, int]:
    """Return an input that the block may be placed in, and the offset; (None, 0) if there is none."""
    for overlap in overlaps:
        source = overlap.source
        if source.last != block.first or len(left.get(source, ())) != 1:
            continue
        offset = offsets[source] - (overlap.distance if overlap.exact else max(overlap.distance, 0))
        ((begin, end),) = left[source]
        if offset % ALIGNMENT == 0 and begin <= offset and offset + align(block.size) <= end:
            return source, offset
    return None, 0


class _Holes:
    """Free ranges of bytes below `top`. Adjacent ranges are merged."""

    def __init__(self) -> None:
        self.top = 0
        self._by_size: list[tuple[int, int]] = []
        self._ends: dict[int, int] = {}
        self._begins: dict[int, int] = {}

    def take(self, size: int) -> int:
        """Allocate the smallest hole that is large enough, the lowest of equals; else extend the top."""
        index = bisect.bisect_left(self._by_size, (size, 0))
        if index < len(self._by_size):
            begin = self._by_size[index][1]
            end = self._remove(begin)
            self._add(begin + size, end)
            return begin
        # A hole that ends at the top only has to grow.
        begin = self._begins.get(self.top, self.top)
        if begin < self.top:
            self._remove(begin)
        self.top = begin + size
        return begin

    def free(self, begin: int, end: int) -> None:
        """Free a range."""
        if begin == end:
            return
        if begin in self._begins:
            before = self._begins[begin]
            self._remove(before)
            begin = before
        if end in self._ends:
            end = self._remove(end)
        self._add(begin, end)

    def _add(self, begin: int, end: int) -> None:
        if begin < end:
            self._ends[begin], self._begins[end] = end, begin
            bisect.insort(self._by_size, (end - begin, begin))

    def _remove(self, begin: int) -> int:
        end = self._ends.pop(begin)
        del self._begins[end]
        del self._by_size[bisect.bisect_left(self._by_size, (end - begin, begin))]
        return end
