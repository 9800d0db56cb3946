"""Offsets of storage in the arena: greedy placement in several orders, the best one wins.

Where very many storages live at once, they are placed in one order only (`microfold.plan.in_time`).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from microfold.ir.views import ALIGNMENT
from microfold.plan.in_time import place_in_time
from microfold.plan.liveness import Storage, bytes_alive, lower_bound
from microfold.plan.overlap import Overlap, align

# With more neighbours on average, blocks are placed in the order of time only: to compare all with all would
# take too long.
MAX_NEIGHBOURS = 32


@dataclass(frozen=True)
class ArenaPlan:
    """Where every storage lies.

    Attributes:
        offsets: bytes from the start of the arena, each a multiple of `ALIGNMENT`.
        size: bytes of the arena.
        lower_bound: bytes that no plan without overlap can go below.
    """

    offsets: Mapping[Storage, int]
    size: int
    lower_bound: int
    overlaps: tuple[Overlap, ...] = field(default=())


class _Conflicts:
    """What lives with what, and which overlaps are allowed all the same."""

    def __init__(self, blocks: Sequence[Storage], overlaps: Sequence[Overlap]):
        self.overlaps = {(o.source, o.target): o for o in overlaps}
        self.neighbours: dict[Storage, list[Storage]] = {block: [] for block in blocks}
        alive: list[Storage] = []
        for block in sorted(blocks, key=lambda b: b.first):
            alive = [other for other in alive if other.last >= block.first]
            for other in alive:
                self.neighbours[block].append(other)
                self.neighbours[other].append(block)
            alive.append(block)


class _Placement:
    """Greedy placement: storages one by one, each to the best place that is left."""

    def __init__(self, conflicts: _Conflicts, *, grow_down: bool):
        self.conflicts = conflicts
        self.grow_down = grow_down
        self.offsets: dict[Storage, int] = {}
        self.bottom = self.top = 0

    def forbidden(self, block: Storage) -> list[tuple[int, int]]:
        """Ranges of offsets, [low, high), that `block` may not take, in order; they do not touch."""
        ranges: list[tuple[int, int]] = []
        overlaps = self.conflicts.overlaps
        for other in self.conflicts.neighbours[block]:
            if other not in self.offsets:
                continue
            offset = self.offsets[other]
            low, high = offset - block.size + 1, offset + other.size
            allowed_from, allowed_to = low, low  # [from, to) is allowed although it overlaps
            if (other, block) in overlaps:  # block is computed from other
                overlap = overlaps[other, block]
                allowed_to = offset - overlap.distance + 1
                allowed_from = allowed_to - 1 if overlap.exact else low
            elif (block, other) in overlaps:  # other is computed from block
                overlap = overlaps[block, other]
                allowed_from = offset + overlap.distance
                allowed_to = allowed_from + 1 if overlap.exact else high
            ranges += [
                (begin, end)
                for begin, end in ((low, min(allowed_from, high)), (max(allowed_to, low), high))
                if begin < end
            ]
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], high)
            else:
                merged.append((low, high))
        return merged

    def place(self, block: Storage) -> None:
        """Put a block at the lowest free place or, growing down, where the whole grows least.

        Growing down makes offsets negative: an output may have to start before an input that already lies at
        the bottom. `result` moves everything up.
        """
        ranges = self.forbidden(block)
        bottom, top = self.bottom, self.top
        edges = [edge for low, high in ranges for edge in (align(high), align(low) - ALIGNMENT)]
        lows = [low for low, _ in ranges]

        def is_free(offset: int) -> bool:
            index = bisect.bisect_right(lows, offset) - 1
            return index < 0 or offset >= ranges[index][1]

        def growth(offset: int) -> tuple[int, int]:
            return max(top, align(offset + block.size)) - min(bottom, offset), offset

        free = [offset for offset in (bottom, *edges) if is_free(offset)]
        chosen = min(free, key=growth) if self.grow_down else min(offset for offset in free if offset >= 0)
        self.offsets[block] = chosen
        self.bottom, self.top = min(self.bottom, chosen), max(self.top, align(chosen + block.size))

    @property
    def size(self) -> int:
        return self.top - self.bottom

    def result(self) -> dict[Storage, int]:
        """Offsets from the start of the arena."""
        return {block: offset - self.bottom for block, offset in self.offsets.items()}


def _orders(blocks: Sequence[Storage]) -> list[list[Storage]]:
    """Orders of placement worth trying; none is best for all models."""
    position = {block: i for i, block in enumerate(blocks)}
    keys: list[Callable[[Storage], tuple[int, ...]]] = [
        lambda b: (-b.size, b.first),
        lambda b: (-b.size, -b.last),
        lambda b: (-(b.last - b.first), -b.size),
        lambda b: (-b.size * (b.last - b.first + 1), b.first),
        lambda b: (b.first, -b.size),
        lambda b: (-b.last, -b.size),
    ]
    return [sorted(blocks, key=lambda b, k=key: (*k(b), position[b])) for key in keys]


def plan_arena(blocks: Sequence[Storage], overlaps: Sequence[Overlap]) -> ArenaPlan:
    """Place all storages, as small as the tried orders allow.

    Args:
        blocks: storages with their lifetimes, in a deterministic order.
        overlaps: pairs that may share bytes though both live during one call.
    """
    if _pairs(blocks) > MAX_NEIGHBOURS * len(blocks) / 2:
        offsets, size = place_in_time(blocks, overlaps)
        return ArenaPlan(offsets, size, lower_bound(blocks), tuple(overlaps))
    conflicts = _Conflicts(blocks, overlaps)
    best: _Placement | None = None
    tried = [*_orders(blocks), *_promote_peak(blocks)]
    for order, grow_down in itertools.product(tried, (False, True)):
        placement = _Placement(conflicts, grow_down=grow_down)
        for block in order:
            placement.place(block)
            if best is not None and placement.size >= best.size:
                break
        else:
            best = placement
    assert best is not None
    return ArenaPlan(best.result(), best.size, lower_bound(blocks), tuple(overlaps))


def _pairs(blocks: Sequence[Storage]) -> int:
    """How many pairs of blocks live together: of each block with those that are there when it comes."""
    ends = sorted(block.last for block in blocks)
    starts = sorted(block.first for block in blocks)
    return sum(index - bisect.bisect_left(ends, first) for index, first in enumerate(starts))


def _promote_peak(blocks: Sequence[Storage]) -> list[list[Storage]]:
    """Orders that place what lives at the fullest moment first, forwards and backwards in time."""
    if not blocks:
        return [[]]
    held = bytes_alive(blocks)
    peak = max(held, key=held.__getitem__)

    def distance(block: Storage) -> int:
        return max(block.first - peak, peak - block.last, 0)

    return [
        sorted(blocks, key=lambda b: (distance(b), -b.size, b.first)),
        sorted(blocks, key=lambda b: (distance(b), b.first)),
        sorted(blocks, key=lambda b: (distance(b), -b.last)),
    ]
