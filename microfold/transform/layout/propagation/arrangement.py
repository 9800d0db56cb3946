"""Algebra of element orders: axes are split into factors, the factors permuted and merged again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array, Shape


class Arrangement(Struct, frozen=True):
    """Order of a value's elements relative to another value, the source.

    Transposes, reshapes, layout changes and all chains of them are arrangements: the source is split into
    factors, the factors are permuted, and the shape of the value merges them again. Shapes are not part of an
    arrangement, because a reshape does not move elements.

    Attributes:
        sizes: sizes of the factors, in the order of the source.
        order: for each factor of the value, its index in the source.
    """

    sizes: Shape
    order: tuple[int, ...]

    @staticmethod
    def identity(shape: Shape) -> Arrangement:
        """Return the arrangement that moves no element."""
        return Arrangement(shape, tuple(range(len(shape))))

    @property
    def value_sizes(self) -> Shape:
        """Sizes of the factors, in the order of the value."""
        return tuple(self.sizes[factor] for factor in self.order)

    @property
    def inverse(self) -> Arrangement:
        """Arrangement of the source relative to the value."""
        return Arrangement(self.value_sizes, inverse_permutation(self.order))

    @property
    def is_view(self) -> bool:
        """Whether no element moves."""
        return len(self.simplified().sizes) <= 1

    def simplified(self) -> Arrangement:
        """Merge factors that stay adjacent, and drop factors of size 1."""
        return _simplified(self)

    def split_source(self, shape: Shape) -> Arrangement | None:
        """Split factors at the bounds of the source's axes. None if that is not possible."""
        return _split_source(self, shape)

    def split_value(self, shape: Shape) -> Arrangement | None:
        """Split factors at the bounds of the value's axes. None if that is not possible."""
        split = self.inverse.split_source(shape)
        return split.inverse if split is not None else None

    def then(self, other: Arrangement) -> Arrangement | None:
        """Compose with an arrangement whose source is this one's value.

        Returns:
            The arrangement of `other`'s value relative to this one's source. None if the factors have no
            common refinement (for example 4 times 6 and 3 times 8).
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
        """Return the elements of the source in the order of the value, with shape `value_sizes`."""
        return np.ascontiguousarray(array.reshape(self.sizes).transpose(self.order))

    def restricted(self, keep: Callable[[int], bool]) -> Arrangement:
        """Return the arrangement of some factors, which `keep` selects by their index in the source."""
        kept = [factor for factor in range(len(self.sizes)) if keep(factor)]
        place = {factor: index for index, factor in enumerate(kept)}
        sizes = tuple(self.sizes[factor] for factor in kept)
        return Arrangement(sizes, tuple(place[factor] for factor in self.order if factor in place))


# Size of the caches: sweeps ask for the same few arrangements at every node.
_REMEMBERED = 1 << 12


@lru_cache(_REMEMBERED)
def _simplified(given: Arrangement) -> Arrangement:
    """Implement `Arrangement.simplified`."""
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
    """Implement `Arrangement.split_source`."""
    pieces = refine(given.sizes, shape)
    if pieces is None:
        return None
    starts = [0, *accumulate(len(parts) for parts in pieces)]
    order = [place for factor in given.order for place in range(starts[factor], starts[factor + 1])]
    return Arrangement(tuple(size for parts in pieces for size in parts), tuple(order))


def inverse_permutation(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inverse of a permutation."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def refine(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """Split each size into factors, outermost first, that do not cross the bounds of `shape`.

    Both describe the same elements. None if their bounds have no common refinement.
    """
    pieces: list[list[int]] = [[] for _ in sizes]
    axes = iter([extent for extent in shape if extent != 1])
    room = 1
    for index, size in enumerate(sizes):
        rest = size
        while rest != 1:
            room = next(axes) if room == 1 else room
            piece = math.gcd(rest, room)
            # Outer parts come first: the remainders of both must be inner parts.
            if piece not in (rest, room):
                return None
            pieces[index].append(piece)
            rest, room = rest // piece, room // piece
        if not pieces[index]:
            pieces[index].append(1)
    return pieces


def group(sizes: Sequence[int], shape: Sequence[int]) -> list[list[int]]:
    """Return the factors, by index, of each axis of a shape. The factors must not cross bounds of the shape.

    An axis of size 1 gets the factor of size 1 at its position, if there is one.
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
