"""Placement problem: sizes of storages, and constraints on the offsets of storages alive together.

All numbers are in units of `ALIGNMENT` bytes. Offsets are multiples of it, so that sizes and distances can be
rounded up without excluding a plan. For storages i and j at least one of these constraints must hold:

- i is above j: ``offset[i] >= offset[j] + size[j]``;
- j is above i;
- j is computed from i, which dies: ``offset[i] >= offset[j] + distance``, or ``==`` if it must be exact.

Each constraint is a lower bound for the difference of two offsets: an `OffsetConstraint`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage, living_together
from microfold.plan.overlap import Overlap

Pair = tuple[int, int]


class OffsetConstraint(NamedTuple):
    """Constraint ``offset[after] >= offset[before] + weight``."""

    before: int
    after: int
    weight: int


class Distance(NamedTuple):
    """Distance of an `Overlap`, in units."""

    least: int
    exact: bool


class ForbiddenDistance(NamedTuple):
    """Forbidden range: ``offset[i] - offset[j]`` must not be in (low, high), except for `exact`."""

    i: int
    j: int
    low: int
    high: int
    exact: tuple[int, ...]


class PlacementProblem(Struct, frozen=True, eq=False, dict=True):
    """Storages by index.

    Attributes:
        pairs: pairs alive together. Pairs whose smaller storage is largest come first, because they matter
            most.
        permission: allowed overlaps, by source and target.
    """

    sizes: Sequence[int]
    pairs: Sequence[Pair]
    allowed_overlaps: Mapping[Pair, Distance]

    def alternatives(self, pair: Pair) -> list[tuple[OffsetConstraint, ...]]:
        """Return the alternatives of a pair, each a set of edges that must all hold."""
        i, j = pair
        found: list[tuple[OffsetConstraint, ...]] = []
        for low, high in ((i, j), (j, i)):
            permission = self.allowed_overlaps.get((high, low))
            # An allowed overlap with the source above the target often includes that the source is above all
            # of it.
            if permission is None or permission.exact or permission.least > self.sizes[low]:
                found.append((OffsetConstraint(low, high, self.sizes[low]),))
            if permission is not None:
                edge = OffsetConstraint(low, high, permission.least)
                back = (OffsetConstraint(high, low, -permission.least),) if permission.exact else ()
                found.append((edge, *back))
        return found

    @cached_property
    def forbidden_distances(self) -> Sequence[ForbiddenDistance]:
        """Distances that no alternative allows, for each pair."""
        found: list[ForbiddenDistance] = []
        for i, j in self.pairs:
            above, below = self.sizes[j], self.sizes[i]
            exact: list[int] = []
            for permission, sign in (
                (self.allowed_overlaps.get((i, j)), 1),
                (self.allowed_overlaps.get((j, i)), -1),
            ):
                if permission is None:
                    continue
                if permission.exact:
                    exact.append(sign * permission.least)
                elif sign > 0:
                    above = min(above, permission.least)
                else:
                    below = min(below, permission.least)
            found.append(ForbiddenDistance(i, j, -below, above, (*exact,)))
        return found

    def height(self, offsets: Sequence[int]) -> int:
        """Return the end of the highest storage."""
        return max(map(int.__add__, offsets, self.sizes), default=0)


def units(size: int) -> int:
    """Return a size in units, rounded up."""
    return -(-size // ALIGNMENT)


def problem_of(blocks: Sequence[Storage], overlaps: Sequence[Overlap]) -> PlacementProblem:
    """Return the placement problem of storages, with the overlaps among them."""
    index = {block: i for i, block in enumerate(blocks)}
    sizes = [units(block.size) for block in blocks]
    pairs = sorted(
        living_together(blocks), key=lambda p: (-min(sizes[p[0]], sizes[p[1]]), -sizes[p[0]] - sizes[p[1]], p)
    )
    permission = {
        (index[o.source], index[o.target]): Distance(units(o.distance), o.exact)
        for o in overlaps
        if o.source in index
        and o.target in index
        and o.source.dies_for(o.target)
        and not (o.exact and o.distance % ALIGNMENT)
    }
    return PlacementProblem(sizes, pairs, permission)
