"""The algebra of orders of elements: split axes into factors, permute the factors, merge them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from microfold.ir.types import Array, Shape
from microfold.support.frozen import frozen


@frozen
class Arrangement:
    """How the elements of a value lie in another one, its source.

    Transposes, reshapes and changes of layout, and all rows of them, are arrangements: the source is split
    into factors, these are permuted, and whatever shape the value has merges them again. Shapes are no part
    of it: a reshape does not move elements.

    Attributes:
        sizes: of the factors, in the source's order.
        order: of the value's factors, which of the source's it is.
    """

    sizes: Shape
    order: tuple[int, ...]

    @staticmethod
    def identity(shape: Shape) -> Arrangement:
        """Nothing moves."""
        return Arrangement(shape, tuple(range(len(shape))))

    @property
    def value_sizes(self) -> Shape:
        """Of the factors, in the value's order."""
        return tuple(self.sizes[factor] for factor in self.order)

    @property
    def inverse(self) -> Arrangement:
        """How the source lies in the value."""
        return Arrangement(self.value_sizes, inverse_permutation(self.order))

    @property
    def is_view(self) -> bool:
        """No element moves."""
        return len(self.simplified().sizes) <= 1

    def simplified(self) -> Arrangement:
        """Return it with the fewest factors: none of size 1, neighbours that stay neighbours merged."""
        return _simplified(self)

    def split_source(self, shape: Shape) -> Arrangement | None:
        """Return it with factors that do not cross bounds of the source's axes; None if there are none."""
        return _split_source(self, shape)

    def split_value(self, shape: Shape) -> Arrangement | None:
        """Return it with factors that do not cross bounds of the value's axes; None if there are none."""
        split = self.inverse.split_source(shape)
        return split.inverse if split is not None else None

    def then(self, other: Arrangement) -> Arrangement | None:
        """How `other`'s value lies in this one's source, this one's value being `other`'s source.

        None if their factors have no common refinement (4 times 6 against 3 times 8).
        """
        first, second = self, other
        if first.value_sizes != second.sizes:
            first, second = first.simplified(), second.simplified()
            split = first.split_value(second.sizes)
            if split is None:
                return None
            first = split
            split = second.split_source(first.value_sizes)
            if split is None:
                return None
            second = split
        return Arrangement(first.sizes, tuple(first.order[factor] for factor in second.order))

    def apply(self, array: Array) -> Array:
        """The source's elements in the value's order; of shape `value_sizes`."""
        return np.ascontiguousarray(array.reshape(self.sizes).transpose(self.order))

    def restricted(self, keep: Callable[[int], bool]) -> Arrangement:
        """Of the factors that are kept, named by their places in the source, only."""
        kept = [factor for factor in range(len(self.sizes)) if keep(factor)]
        place = {factor: index for index, factor in enumerate(kept)}
        sizes = tuple(self.sizes[factor] for factor in kept)
        return Arrangement(sizes, tuple(place[factor] for factor in self.order if factor in place))


# Sweeps ask for the same few arrangements at every node.
_REMEMBERED = 1 << 12


@lru_cache(_REMEMBERED)
def _simplified(given: Arrangement) -> Arrangement:
    """See `Arrangement.simplified`."""
    kept = [factor for factor in given.order if given.sizes[factor] != 1]
    rank = {factor: place for place, factor in enumerate(sorted(kept))}
    runs: list[list[int]] = []
    for factor in kept:
        if runs and rank[factor] == rank[runs[-1][-1]] + 1:
            runs[-1].append(factor)
        else:
            runs.append([factor])
    by_source = sorted(range(len(runs)), key=lambda run: rank[runs[run][0]])
    sizes = tuple(math.prod(given.sizes[factor] for factor in runs[run]) for run in by_source)
    return Arrangement(sizes, inverse_permutation(tuple(by_source)))


@lru_cache(_REMEMBERED)
def _split_source(given: Arrangement, shape: Shape) -> Arrangement | None:
    """See `Arrangement.split_source`."""
    pieces = refine(given.sizes, shape)
    if pieces is None:
        return None
    starts = [0, *accumulate(len(parts) for parts in pieces)]
    order = [place for factor in given.order for place in range(starts[factor], starts[factor + 1])]
    return Arrangement(tuple(size for parts in pieces for size in parts), tuple(order))


def inverse_permutation(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def refine(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """The factors of each size, outermost first, so that those of all of them do not cross bounds of `shape`.

    Both are extents of the same elements. None if the bounds of one lie across those of the other.
    """
    pieces: list[list[int]] = [[] for _ in sizes]
    axes = iter([extent for extent in shape if extent != 1])
    room = 1
    for index, size in enumerate(sizes):
        rest = size
        while rest != 1:
            room = next(axes) if room == 1 else room
            piece = math.gcd(rest, room)
            # Outer parts come first: what is left of both must be inner parts.
            if piece not in (rest, room):
                return None
            pieces[index].append(piece)
            rest, room = rest // piece, room // piece
        if not pieces[index]:
            pieces[index].append(1)
    return pieces


def group(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]]:
    """The factors, by their places, of each axis of a shape whose bounds they do not cross.

    An axis of size 1 takes the factor of size 1 that stands in its place, if there is one.
    """
    groups: list[list[int]] = []
    place = 0
    for extent in shape:
        taken: list[int] = []
        rest = extent
        if extent == 1 and place < len(sizes) and sizes[place] == 1:
            taken.append(place)
            place += 1
        while rest != 1:
            taken.append(place)
            rest //= sizes[place]
            place += 1
        groups.append(taken)
    if groups:
        groups[-1] += range(place, len(sizes))
    return groups
