"""Placement problem: sizes of storages, and constraints on the offsets of storages alive together.

All numbers are in units of `ALIGNMENT` bytes. Offsets are multiples of it, so that sizes and distances can be
rounded up without excluding a plan. For storages i and j at least one of these constraints must hold:

- i is above j: ``offset[i] >= offset[j] + size[j]``;
- j is above i;
- j is computed from i, which dies: ``offset[i] >= offset[j] + distance``, or ``==`` if it must be exact.

Each constraint is a lower bound for the difference of two offsets: an `Edge`.
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
    """Constraint ``offset[after] >= offset[before] + weight``."""

    before: int
    after: int
    weight: int


class Distance(NamedTuple):
    """Distance of an `Overlap`, in units."""

    least: int
    exact: bool


class Apart(NamedTuple):
    """Forbidden range: ``offset[i] - offset[j]`` must not be in (low, high), except for `exact`."""

    i: int
    j: int
    low: int
    high: int
    exact: tuple[int, ...]


@frozen(eq=False)
class Problem:
    """Storages by index.

    Attributes:
        pairs: pairs alive together. Pairs whose smaller storage is largest come first, because they matter
            most.
        leave: allowed overlaps, by source and target.
    """

    sizes: Sequence[int]
    pairs: Sequence[Pair]
    leave: Mapping[Pair, Distance]

    def alternatives(self, pair: Pair) -> list[tuple[Edge, ...]]:
        """Return the alternatives of a pair, each a set of edges that must all hold."""
        i, j = pair
        found: list[tuple[Edge, ...]] = []
        for low, high in ((i, j), (j, i)):
            leave = self.leave.get((high, low))
            # An allowed overlap with the source above the target often includes that the source is above all
            # of it.
            if leave is None or leave.exact or leave.least > self.sizes[low]:
                found.append((Edge(low, high, self.sizes[low]),))
            if leave is not None:
                edge = Edge(low, high, leave.least)
                back = (Edge(high, low, -leave.least),) if leave.exact else ()
                found.append((edge, *back))
        return found

    @cached_property
    def apart(self) -> Sequence[Apart]:
        """Distances that no alternative allows, for each pair."""
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
        """Return the end of the highest storage."""
        return max(map(int.__add__, offsets, self.sizes), default=0)


def units(size: int) -> int:
    """Return a size in units, rounded up."""
    return -(-size // ALIGNMENT)


def problem_of(blocks: Sequence[Storage], overlaps: Sequence[Overlap]) -> Problem:
    """Return the placement problem of storages, with the overlaps among them."""
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
