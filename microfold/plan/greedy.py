"""Greedy placement: storages one by one, each to the best place that is left; in several orders.

`climb` goes on from the best of these plans, by small changes of its order.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage, alive
from microfold.plan.overlap import Overlap, align

_Ranges = tuple[tuple[int, int], ...]

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
        self._forbidden: dict[Storage, list[tuple[Storage, _Ranges]]] = {}
        alive: list[Storage] = []
        for block in sorted(blocks, key=lambda b: b.first):
            alive = [other for other in alive if other.last >= block.first]
            for other in alive:
                if block.lives_with(other):
                    self.neighbours[block].append(other)
                    self.neighbours[other].append(block)
            alive.append(block)

    def forbidden(self, block: Storage) -> list[tuple[Storage, _Ranges]]:
        """Neighbours, with ranges [low, high) of offsets from theirs that the block may not take.

        They are the same for every order of placement, and so worked out once.
        """
        found = self._forbidden.get(block)
        if found is None:
            found = [(other, self._ranges(block, other)) for other in self.neighbours[block]]
            self._forbidden[block] = found
        return found

    def _ranges(self, block: Storage, other: Storage) -> _Ranges:
        low, high = 1 - block.size, other.size
        allowed_from, allowed_to = low, low  # [from, to) is allowed although it overlaps
        if (other, block) in self.overlaps:  # block is computed from other
            overlap = self.overlaps[other, block]
            allowed_to = 1 - overlap.distance
            allowed_from = allowed_to - 1 if overlap.exact else low
        elif (block, other) in self.overlaps:  # other is computed from block
            overlap = self.overlaps[block, other]
            allowed_from = overlap.distance
            allowed_to = allowed_from + 1 if overlap.exact else high
        sides = ((low, min(allowed_from, high)), (max(allowed_to, low), high))
        return tuple((begin, end) for begin, end in sides if begin < end)


class _Placement:
    """Greedy placement: storages one by one, each to the best place that is left."""

    def __init__(self, conflicts: Conflicts, *, grow_down: bool):
        self.conflicts = conflicts
        self.grow_down = grow_down
        self.offsets: dict[Storage, int] = {}
        self.bottom = self.top = 0

    def forbidden(self, block: Storage) -> list[tuple[int, int]]:
        """Ranges of offsets, [low, high), that `block` may not take, by where they begin."""
        offsets = self.offsets
        return sorted(
            (offset + low, offset + high)
            for other, ranges in self.conflicts.forbidden(block)
            if (offset := offsets.get(other)) is not None
            for low, high in ranges
        )

    def place(self, block: Storage) -> None:
        """Put a block at the lowest free place or, growing down, where the whole grows least.

        Growing down makes offsets negative: an output may have to start before an input that already lies at
        the bottom. `result` moves everything up.
        """
        ranges = self.forbidden(block)
        chosen = self._smallest_growth(ranges, block.size) if self.grow_down else _lowest(ranges)
        self.offsets[block] = chosen
        self.bottom, self.top = min(self.bottom, chosen), max(self.top, align(chosen + block.size))

    def _smallest_growth(self, ranges: Sequence[tuple[int, int]], size: int) -> int:
        """Of the ends of all gaps and the bottom, where the arena grows least; the lowest one of equals."""
        bottom, top = self.bottom, self.top
        begin: int | None = None  # of the gap that the next range ends; None: there is no lower range
        places: list[int] = []
        for low, high in ranges:
            if begin is None or begin < low:
                last = align(low) - ALIGNMENT
                if begin is None or last >= begin:
                    places.append(last)
                if begin is not None and (first := align(begin)) < low:
                    places.append(first)
                if bottom < low and (begin is None or bottom >= begin):
                    places.append(bottom)
            if begin is None or high > begin:
                begin = high
        places.append(bottom if begin is None else align(begin))
        if begin is not None and bottom >= begin:
            places.append(bottom)
        best, least = places[0], None
        for offset in places:
            above, below = align(offset + size), offset
            growth = (above if above > top else top) - (below if below < bottom else bottom)
            if least is None or (growth, offset) < (least, best):
                best, least = offset, growth
        return best

    @property
    def size(self) -> int:
        return self.top - self.bottom

    def result(self) -> dict[Storage, int]:
        """Offsets from the start of the arena."""
        return {block: offset - self.bottom for block, offset in self.offsets.items()}


def _lowest(ranges: Sequence[tuple[int, int]]) -> int:
    """The lowest place from 0 on in none of the ranges, which come by where they begin."""
    offset = 0
    for low, high in ranges:
        if offset < low:
            break
        if offset < high:
            offset = align(high)
    return offset


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


def place_greedily(conflicts: Conflicts, enough: int = 0) -> Placed:
    """The smallest plan of all orders worth trying, the first of equals.

    Args:
        enough: bytes that are few enough: no smaller plan is looked for.
    """
    best: Placed | None = None
    tried = [*_orders(conflicts.blocks), *_promote_peak(conflicts.blocks)]
    for order, grow_down in itertools.product(tried, (False, True)):
        if best is not None and best.size <= enough:
            break
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
        tried = place_in_order(conflicts, order, grow_down=grow_down, limit=now.size + 1)
        if tried is None and draw() < WORSE:
            tried = place_in_order(conflicts, order, grow_down=grow_down)
        if tried is not None:
            now = tried
            best = min(best, now, key=lambda placed: placed.size)
    return best
