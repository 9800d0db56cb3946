"""Greedy placement: storages one by one, each to the best place that is left; in several orders.

`climb` goes on from the best of these plans, by small changes of its order.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage, alive
from microfold.plan.overlap import Overlap, align

# Steps of `climb`, of which each places all storages once, and what they may take: neighbours looked at.
CLIMB_ROUNDS = 300
CLIMB_LIMIT = 300_000
# How often a step is kept that makes the plan larger, and one that also goes another way up or down.
WORSE, OTHER_WAY = 0.02, 0.1


@dataclass(frozen=True, eq=False)
class Placed:
    """What became of an order of placement.

    Attributes:
        offsets: bytes from the start of the arena.
        size: bytes of the arena.
    """

    offsets: Mapping[Storage, int]
    size: int
    order: Sequence[Storage]
    grow_down: bool


class Conflicts:
    """What lives with what, and which overlaps are allowed all the same."""

    def __init__(self, blocks: Sequence[Storage], overlaps: Sequence[Overlap]):
        self.blocks = blocks
        self.overlaps = {(o.source, o.target): o for o in overlaps}
        self.neighbours: dict[Storage, list[Storage]] = {block: [] for block in blocks}
        alive: list[Storage] = []
        for block in sorted(blocks, key=lambda b: b.first):
            alive = [other for other in alive if other.last >= block.first]
            for other in alive:
                if block.lives_with(other):
                    self.neighbours[block].append(other)
                    self.neighbours[other].append(block)
            alive.append(block)


class _Placement:
    """Greedy placement: storages one by one, each to the best place that is left."""

    def __init__(self, conflicts: Conflicts, *, grow_down: bool):
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


def _promote_peak(blocks: Sequence[Storage]) -> list[list[Storage]]:
    """Orders that place what lives at the fullest moment first, forwards and backwards in time."""
    if not blocks:
        return [[]]
    held = alive(blocks, lambda b: b.size)
    peak = max(held, key=held.__getitem__)

    def distance(block: Storage) -> int:
        return max(block.first - peak, peak - block.last, 0)

    return [
        sorted(blocks, key=lambda b: (distance(b), -b.size, b.first)),
        sorted(blocks, key=lambda b: (distance(b), b.first)),
        sorted(blocks, key=lambda b: (distance(b), -b.last)),
    ]


def place_in_order(
    conflicts: Conflicts, order: Sequence[Storage], *, grow_down: bool, limit: int | None = None
) -> Placed | None:
    """Place storages one after the other; None if the arena reaches the limit, bytes."""
    placement = _Placement(conflicts, grow_down=grow_down)
    for block in order:
        placement.place(block)
        if limit is not None and placement.size >= limit:
            return None
    return Placed(placement.result(), placement.size, order, grow_down)


def place_greedily(conflicts: Conflicts) -> Placed:
    """The smallest plan of all orders worth trying, the first of equals."""
    best: Placed | None = None
    tried = [*_orders(conflicts.blocks), *_promote_peak(conflicts.blocks)]
    for order, grow_down in itertools.product(tried, (False, True)):
        limit = best.size if best is not None else None
        best = place_in_order(conflicts, order, grow_down=grow_down, limit=limit) or best
    assert best is not None
    return best


def climb(conflicts: Conflicts, start: Placed, enough: int, rounds: int = CLIMB_ROUNDS) -> Placed:
    """A plan that is no larger: what lies at the top is placed earlier, again and again.

    Args:
        enough: bytes that no plan can go below.
        rounds: steps at most.
    """
    # Of a generator, only `random` is the same in all versions of Python.
    draw = random.Random(0).random
    links = sum(map(len, conflicts.neighbours.values()))
    best = now = start
    for _ in range(min(rounds, CLIMB_LIMIT // max(links, 1))):
        if best.size <= enough:
            break
        tops = [b for b, offset in now.offsets.items() if align(offset + b.size) == now.size]
        order = list(now.order)
        place = order.index(tops[int(draw() * len(tops))])
        order.insert(int(draw() * (place + 1)), order.pop(place))
        grow_down = now.grow_down != (draw() < OTHER_WAY)
        tried = place_in_order(conflicts, order, grow_down=grow_down)
        assert tried is not None
        if tried.size <= now.size or draw() < WORSE:
            now = tried
        if tried.size < best.size:
            best = tried
    return best
