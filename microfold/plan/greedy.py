"""Greedy placement: places storages one by one, each at the best free offset, in several orders.

`climb` improves the best of these plans by small changes of its order.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage, alive, living_together
from microfold.plan.overlap import Overlap, align
from microfold.plan.problem import units

# Range of units at which a storage must not begin: [low, high).
_Range = tuple[int, int]

# Maximum rounds of `climb`, and maximum neighbour visits of all rounds. A round places all storages once.
CLIMB_ROUNDS = 300
CLIMB_LIMIT = 300_000
# Probability of keeping a round that makes the plan larger, and of changing the direction of growth.
WORSE, OTHER_WAY = 0.02, 0.1


class GreedyPlan(Struct, frozen=True, eq=False):
    """Result of a placement order.

    Attributes:
        offsets: offset from the start of the arena, in bytes.
        size: size of the arena, in bytes.
    """

    offsets: Mapping[Storage, int]
    size: int
    order: Sequence[Storage]
    grow_down: bool


class Conflicts:
    """Pairs of storages that are alive at the same time, and their allowed overlaps."""

    def __init__(self, blocks: Sequence[Storage], overlaps: Sequence[Overlap]):
        self.blocks = blocks
        self.overlaps = {(o.source, o.target): o for o in overlaps}
        self.index = {block: index for index, block in enumerate(blocks)}
        self.units = [units(block.size) for block in blocks]
        self._neighbours: list[list[int]] = [[] for _ in blocks]
        self._forbidden: list[list[tuple[int, int, int]] | None] = [None for _ in blocks]
        for one, other in living_together(blocks):
            self._neighbours[one].append(other)
            self._neighbours[other].append(one)

    @property
    def links(self) -> int:
        """Total number of neighbours of all storages."""
        return sum(map(len, self._neighbours))

    def forbidden(self, index: int) -> list[tuple[int, int, int]]:
        """Return (neighbour, low, high): units relative to the neighbour at which a block must not begin.

        The ranges are the same for every placement order, and are therefore cached.
        """
        found = self._forbidden[index]
        if found is None:
            block = self.blocks[index]
            neighbours = self._neighbours[index]
            found = [(n, *ends) for n in neighbours for ends in self._ranges(block, self.blocks[n])]
            self._forbidden[index] = found
        return found

    def _ranges(self, block: Storage, other: Storage) -> Iterator[_Range]:
        low, high = 1 - block.size, other.size
        allowed_from, allowed_to = low, low  # bytes [from, to) are allowed overlaps
        if (other, block) in self.overlaps:  # block is computed from other
            overlap = self.overlaps[other, block]
            allowed_to = 1 - overlap.distance
            allowed_from = allowed_to - 1 if overlap.exact else low
        elif (block, other) in self.overlaps:  # other is computed from block
            overlap = self.overlaps[block, other]
            allowed_from = overlap.distance
            allowed_to = allowed_from + 1 if overlap.exact else high
        for begin, end in ((low, min(allowed_from, high)), (max(allowed_to, low), high)):
            if units(begin) < units(end):
                yield units(begin), units(end)


def _smallest_growth(ranges: Sequence[_Range], bottom: int, top: int, size: int) -> int:
    """Return the place for a block at which an arena [bottom, top) grows least, the lowest one of equals.

    Only the ends of the gaps between the ranges and the bottom can be optimal. Ranges are sorted by their
    begin.
    """
    if not ranges:
        return bottom
    begin = ranges[0][0]
    places = [begin - 1]
    if bottom < begin:
        places.append(bottom)
    for low, high in ranges:
        if begin < low:
            places += (low - 1, begin)
            if begin <= bottom < low:
                places.append(bottom)
        if high > begin:
            begin = high
    places.append(begin)
    if bottom >= begin:
        places.append(bottom)
    best, least = 0, None
    for place in places:
        above = place + size
        growth = (above if above > top else top) - (place if place < bottom else bottom)
        if least is None or growth < least or (growth == least and place < best):
            best, least = place, growth
    return best


def _lowest(ranges: Sequence[_Range]) -> int:
    """Return the lowest unit from 0 on that is in no range. Ranges are sorted by their begin."""
    place = 0
    for low, high in ranges:
        if place < low:
            break
        if place < high:
            place = high
    return place


def _orders(blocks: Sequence[Storage]) -> list[list[Storage]]:
    """Return placement orders to try. None of them is best for all models."""
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
    """Return orders that start with the storages at the peak and continue forwards or backwards in time."""
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
) -> GreedyPlan | None:
    """Place storages one after the other; None if the arena reaches the limit, in bytes.

    Each storage gets the lowest free place. With `grow_down` it gets the place at which the arena grows
    least, which may be below 0: an output may have to start before an input that is already at the bottom.
    """
    most = math.inf if limit is None else units(limit)
    places: list[int | None] = [None] * len(conflicts.blocks)
    chosen_places: list[int] = []
    bottom = top = 0
    for index in map(conflicts.index.__getitem__, order):
        ranges = [
            (place + low, place + high)
            for other, low, high in conflicts.forbidden(index)
            if (place := places[other]) is not None
        ]
        ranges.sort()
        size = conflicts.units[index]
        chosen = _smallest_growth(ranges, bottom, top, size) if grow_down else _lowest(ranges)
        places[index] = chosen
        chosen_places.append(chosen)
        if chosen < bottom:
            bottom = chosen
        if chosen + size > top:
            top = chosen + size
        if top - bottom >= most:
            return None
    found = zip(order, chosen_places, strict=True)
    offsets = {block: (place - bottom) * ALIGNMENT for block, place in found}
    return GreedyPlan(offsets, (top - bottom) * ALIGNMENT, order, grow_down)


def place_greedily(conflicts: Conflicts, enough: int = 0) -> GreedyPlan:
    """Return the smallest plan of all orders to try, the first one of equals.

    Args:
        enough: size in bytes that is small enough to end the search.
    """
    best: GreedyPlan | None = None
    tried = [*_orders(conflicts.blocks), *_promote_peak(conflicts.blocks)]
    for order, grow_down in itertools.product(tried, (False, True)):
        if best is not None and best.size <= enough:
            break
        limit = best.size if best is not None else None
        best = place_in_order(conflicts, order, grow_down=grow_down, limit=limit) or best
    assert best is not None
    return best


def climb(conflicts: Conflicts, start: GreedyPlan, enough: int, rounds: int = CLIMB_ROUNDS) -> GreedyPlan:
    """Return a plan that is not larger, by moving storages at the top to earlier places in the order.

    Args:
        enough: known lower bound, in bytes.
        rounds: maximum number of rounds.
    """
    # Only `random` is the same in all versions of Python, not the other functions of a generator.
    draw = random.Random(0).random
    best = now = start
    for _ in range(min(rounds, CLIMB_LIMIT // max(conflicts.links, 1))):
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
