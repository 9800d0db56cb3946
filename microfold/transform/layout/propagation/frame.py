"""Frame: the axes of a value and of its source, for rules that compute on the source."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Shape
from microfold.transform.layout.propagation.arrangement import Arrangement, group


class Frame(Struct, frozen=True):
    """Factors of a value: their axes in the value, and their groups, the axes of the source.

    Attributes:
        value: shape of the value.
        arrangement: arrangement split so that no factor crosses a bound of an axis of value or source.
        axes: for each factor of the source, its axis of the value.
        groups: for each axis of the source, the indices of its factors.
    """

    value: Shape
    arrangement: Arrangement
    axes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @staticmethod
    @lru_cache(1 << 12)  # sweeps ask for the same few frames at every node
    def of(arrangement: Arrangement, value: Shape, source: Shape) -> Frame | None:
        """Return the frame of a value and a source of these shapes; None if the value's axes cannot be split.

        If the axes of the source cannot be split, every factor becomes one axis.
        """
        divided = arrangement.split_value(value)
        if divided is None:
            return None
        finer = divided.split_source(source)
        arrangement = finer or divided
        axes = [0] * len(arrangement.sizes)
        for axis, places in enumerate(group(arrangement.value_sizes, value)):
            for place in places:
                axes[arrangement.order[place]] = axis
        singles = tuple((factor,) for factor in range(len(axes)))
        groups = tuple(map(tuple, group(arrangement.sizes, source))) if finer else singles
        return Frame(value, arrangement, tuple(axes), groups)

    @property
    def shape(self) -> Shape:
        """Shape of the source according to the groups."""
        return self.kept_shape(lambda _: True)

    def kept_shape(self, keep: Callable[[int], bool]) -> Shape:
        """Return `shape` with extent 1 for the factors that are not kept."""
        sizes = self.arrangement.sizes
        return tuple(math.prod(sizes[f] for f in factors if keep(f)) for factors in self.groups)

    def regrouped(self, key: Callable[[int], Hashable]) -> Frame:
        """Split groups so that all factors of a group have the same key. The key None fits any group."""
        groups: list[tuple[int, ...]] = []
        for factors in self.groups:
            parts: list[list[int]] = [[]]
            current: Hashable = None
            for factor in factors:
                wanted = key(factor)
                if wanted is not None and current is not None and wanted != current:
                    parts.append([])
                current = current if wanted is None else wanted
                parts[-1].append(factor)
            groups += map(tuple, parts)
        return replace(self, groups=tuple(groups))

    def isolated(self, axes: Callable[[int], bool]) -> Frame | str:
        """Return the frame with each of these axes of the value as one axis of the source, or the refusal.

        The factors of each of these axes are merged into one factor.
        """
        frame = self
        wanted = [axis for axis in sorted(set(self.axes)) if axes(axis)]
        for axis in wanted:
            merged = frame._merged(axis)
            if merged is None:
                return f"the elements of axis {axis} are not contiguous in the other order"
            frame = merged
        isolated = frame

        def key(factor: int) -> Hashable:
            if isolated.axes[factor] in wanted:
                return isolated.axes[factor]
            return None if isolated.arrangement.sizes[factor] == 1 else "others"

        return isolated.regrouped(key)

    def _merged(self, axis: int) -> Frame | None:
        arrangement = self.arrangement
        run = [f for f in arrangement.order if self.axes[f] == axis]
        large = [f for f in run if arrangement.sizes[f] != 1] or run[:1]
        between = range(large[0], large[-1] + 1)
        others = [f for f in between if f not in large and arrangement.sizes[f] != 1]
        if large != sorted(large) or others:
            return None
        gone = {*large[1:], *(f for f in run if f not in large)}
        kept = [f for f in range(len(arrangement.sizes)) if f not in gone]
        place = {f: index for index, f in enumerate(kept)}
        sizes = list(arrangement.sizes)
        sizes[large[0]] = math.prod(arrangement.sizes[f] for f in large)
        groups = list(self.groups)
        # The factors of one axis of the value may belong to several axes of the source.
        home = next(index for index, factors in enumerate(groups) if large[0] in factors)
        touched = [i for i, factors in enumerate(groups) if any(f in large for f in factors)]
        groups[home : touched[-1] + 1] = [
            tuple(f for factors in groups[home : touched[-1] + 1] for f in factors)
        ]
        return Frame(
            self.value,
            Arrangement(
                tuple(sizes[f] for f in kept), tuple(place[f] for f in arrangement.order if f in place)
            ),
            tuple(self.axes[f] for f in kept),
            tuple(tuple(place[f] for f in factors if f in place) for factors in groups),
        )

    def place_of(self, axis: int) -> int | None:
        """Return the group of an isolated axis of the value; None if it has extent 1 and no factor."""
        found = [
            index for index, factors in enumerate(self.groups) if any(self.axes[f] == axis for f in factors)
        ]
        return found[0] if found else None

    def resized(self, axis: int, extent: int) -> Frame:
        """Return the frame with another extent of an isolated axis."""
        sizes = tuple(
            extent if self.axes[f] == axis else size for f, size in enumerate(self.arrangement.sizes)
        )
        value = (*self.value[:axis], extent, *self.value[axis + 1 :])
        return replace(self, value=value, arrangement=Arrangement(sizes, self.arrangement.order))

    def without(self, gone: Callable[[int], bool]) -> Arrangement:
        """Return the arrangement without some axes of the value."""
        return self.arrangement.restricted(lambda factor: not gone(self.axes[factor]))
