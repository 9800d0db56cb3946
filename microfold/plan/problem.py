"""Placement of storages as arithmetic: sizes, and what offsets of two that live together must satisfy.

Everything is in units of `ALIGNMENT` bytes: offsets are multiples of it, so that sizes and distances may be
rounded up without losing a plan. Of storages i and j at least one of these must hold:

- i lies above j: ``offset[i] >= offset[j] + size[j]``;
- j lies above i;
- j is computed from i, which dies: ``offset[i] >= offset[j] + distance``, or ``==`` where it must be exact.

All are differences of two offsets with a lower bound: an `Edge`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage, living_together
from microfold.plan.overlap import Overlap
from microfold.support.frozen import frozen

Pair = tuple[int, int]


class Edge(NamedTuple):
    """``offset[after] >= offset[before] + weight``."""

    before: int
    after: int
    weight: int


class Distance(NamedTuple):
    """What `Overlap` says, in units."""

    least: int
    exact: bool


class Apart(NamedTuple):
    """``offset[i] - offset[j]`` may not lie between `low` and `high`, both excluded, but for `exact`."""

    i: int
    j: int
    low: int
    high: int
    exact: tuple[int, ...]


@frozen(eq=False)
class Problem:
    """Storages by index.

    Attributes:
        pairs: those that live together, the ones with the largest smaller storage first: where they lie
            decides most.
        leave: by source and target.
    """

    sizes: Sequence[int]
    pairs: Sequence[Pair]
    leave: Mapping[Pair, Distance]

    def alternatives(self, pair: Pair) -> list[tuple[Edge, ...]]:
        """What may hold of a pair: edges of which all must."""
        i, j = pair
        found: list[tuple[Edge, ...]] = []
        for low, high in ((i, j), (j, i)):
            leave = self.leave.get((high, low))
            # Leave for a source above its target often includes that it lies above all of it.
            if leave is None or leave.exact or leave.least > self.sizes[low]:
                found.append((Edge(low, high, self.sizes[low]),))
            if leave is not None:
                edge = Edge(low, high, leave.least)
                back = (Edge(high, low, -leave.least),) if leave.exact else ()
                found.append((edge, *back))
        return found

    @cached_property
    def apart(self) -> Sequence[Apart]:
        """The distances that no alternative allows, of each pair."""
        found: list[Apart] = []
        for i, j in self.pairs:
            above, below = self.sizes[j], self.sizes[i]
            exact: list[int] = []
            for leave, sign in ((self.leave.get((i, j)), 1), (self.leave.get((j, i)), -1)):
                if leave is None:
                    continue
                if leave.exact:
                    exact.append(sign * leave.least)
                elif sign > 0:
                    above = min(above, leave.least)
                else:
                    below = min(below, leave.least)
            found.append(Apart(i, j, -below, above, (*exact,)))
        return found

    def height(self, offsets: Sequence[int]) -> int:
        """Where the highest storage ends."""
        return max(map(int.__add__, offsets, self.sizes), default=0)


def units(size: int) -> int:
    """Rounded up."""
    return -(-size // ALIGNMENT)


def problem_of(blocks: Sequence[Storage], overlaps: Sequence[Overlap]) -> Problem:
    """The problem of storages; overlaps of others are left out."""
    index = {block: i for i, block in enumerate(blocks)}
    sizes = [units(block.size) for block in blocks]
    pairs = sorted(
        living_together(blocks), key=lambda p: (-min(sizes[p[0]], sizes[p[1]]), -sizes[p[0]] - sizes[p[1]], p)
    )
    leave = {
        (index[o.source], index[o.target]): Distance(units(o.distance), o.exact)
        for o in overlaps
        if o.source in index
        and o.target in index
        and o.source.dies_for(o.target)
        and not (o.exact and o.distance % ALIGNMENT)
    }
    return Problem(sizes, pairs, leave)
