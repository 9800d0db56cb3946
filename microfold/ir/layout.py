"""Image layouts: the order of axes as a string of axis names.

``NHWC`` is batch, height, width, channels, outermost axis first. A blocked layout splits an axis in two: in
``NCHW4c`` the axis ``C`` counts blocks, and ``4c``, here the innermost axis, is the channel within a block. A
value with the NHWC shape [N, H, W, C] then has the shape [N, C / 4, H, W, 4]. The notation is TVM's
(https://tvm.apache.org/docs/reference/api/python/tir/tir.html, BijectiveLayout).
"""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np
from msgspec import Struct

from microfold.errors import TypeRuleError
from microfold.ir.types import Array, Shape

NHWC = "NHWC"


class Axis(Struct, frozen=True):
    """One axis of a layout.

    Attributes:
        name: letter of the axis, in upper case.
        block: extent of an inner axis; 0 for an outer or undivided axis.
    """

    name: str
    block: int = 0


class LayoutMapping(Struct, frozen=True):
    """Conversion of an array from one layout to another: reshape, transpose, reshape.

    Attributes:
        split: shape of the source after the first reshape, which divides axes.
        permutation: permutation of the axes of `split`, as in ``numpy.transpose``.
        shape: shape of the result.
    """

    split: Shape
    permutation: tuple[int, ...]
    shape: Shape

    @property
    def is_identity(self) -> bool:
        """Whether neither shape nor order changes."""
        return self.split == self.shape and self.permutation == tuple(range(len(self.split)))

    def apply(self, array: Array) -> Array:
        """Return the array in the other layout."""
        moved = array.reshape(self.split).transpose(self.permutation)
        return np.ascontiguousarray(moved.reshape(self.shape))


@cache
def parse(layout: str) -> tuple[Axis, ...]:
    """Return the axes of a layout.

    Raises:
        TypeRuleError: the string is not a layout.
    """
    if not re.fullmatch(r"(?:[A-Z]|(?:[2-9]|[1-9][0-9]+)[a-z])+", layout):
        raise TypeRuleError(
            "a layout is a sequence of axes: upper-case letters and, for the inner part of a divided axis, "
            f"its extent (2 or more) and the lower-case letter (NHWC, NCHW4c); got {layout!r}"
        )
    found = re.findall(r"([A-Z])|([0-9]+)([a-z])", layout)
    axes = tuple(Axis(outer) if outer else Axis(inner.upper(), int(block)) for outer, block, inner in found)
    if len({(axis.name, axis.block > 0) for axis in axes}) < len(axes):
        raise TypeRuleError(f"a layout names each axis once, and a divided one twice; got {layout!r}")
    whole = {axis.name for axis in axes if not axis.block}
    alone = sorted({axis.name for axis in axes} - whole)
    if alone:
        raise TypeRuleError(f"{layout!r} has the inner part of axis {alone[0]}, but not the outer one")
    return axes


def check_image(layout: str, who: str = "") -> None:
    """Raise `TypeRuleError` unless the layout is an image layout, with the axes N, H, W and C."""
    if {axis.name for axis in parse(layout)} != set(NHWC):
        raise TypeRuleError(
            f"{_said(who)}an image has the axes N, H, W and C, as in NHWC; the layout is {layout!r}"
        )


def is_blocked(layout: str) -> bool:
    """Return whether some axis is divided."""
    return any(axis.block for axis in parse(layout))


def between(source: str, target: str, shape: Shape, who: str = "") -> LayoutMapping:
    """Return the conversion of a value of `shape` from layout `source` to layout `target`.

    Args:
        who: subject of error messages, such as the operator's name.

    Raises:
        TypeRuleError: the layouts have different axes, the shape has another rank, or an extent is not a
            multiple of the block that it is divided into.
    """
    given, wanted = parse(source), parse(target)
    if {axis.name for axis in given} != {axis.name for axis in wanted}:
        raise TypeRuleError(
            f"{_said(who)}layouts must have the same axes; they are {source!r} and {target!r}"
        )
    extents = extents_of(source, shape, who)
    factors = {name: _factors(name, extent, (*given, *wanted), who) for name, extent in extents.items()}
    split, order = _divided(given, factors), _divided(wanted, factors)
    position = {factor: index for index, factor in enumerate(factor for axis in split for factor in axis)}
    return LayoutMapping(
        split=tuple(factor.size for axis in split for factor in axis),
        permutation=tuple(position[factor] for axis in order for factor in axis),
        shape=tuple(math.prod(factor.size for factor in axis) for axis in order),
    )


def permutation(source: str, target: str) -> tuple[int, ...]:
    """Return the transpose from one layout to another, if neither is blocked.

    Raises:
        TypeRuleError: the layouts have different axes, or one is blocked.
    """
    if is_blocked(source) or is_blocked(target):
        raise TypeRuleError(f"a transpose does not divide axes: {source} to {target} needs layout_transform")
    return between(source, target, (1,) * len(parse(source))).permutation


def extents_of(layout: str, shape: Shape, who: str = "") -> dict[str, int]:
    """Return the whole extent of each axis of a value in this layout, by the axis name.

    Raises:
        TypeRuleError: the shape does not fit the layout.
    """
    axes = parse(layout)
    if len(shape) != len(axes):
        raise TypeRuleError(
            f"{_said(who)}a value in layout {layout} must have rank {len(axes)}; its shape is {list(shape)}"
        )
    found: dict[str, int] = {}
    for axis, extent in zip(axes, shape, strict=True):
        if axis.block and extent != axis.block:
            raise TypeRuleError(
                f"{_said(who)}in layout {layout} the inner part of {axis.name} must have {axis.block} "
                f"elements; the shape is {list(shape)}"
            )
        found[axis.name] = found.get(axis.name, 1) * extent
    return found


def _said(who: str) -> str:
    return f"{who}: " if who else ""


class _Factor(Struct, frozen=True):
    """Part of an axis. A step along the part is `step` elements of the axis."""

    axis: str
    step: int
    size: int


def _factors(name: str, extent: int, axes: tuple[Axis, ...], who: str) -> list[_Factor]:
    """Return the parts of an axis, outermost first, from which all axes of both layouts can be composed."""
    blocks = sorted({axis.block for axis in axes if axis.name == name and axis.block})
    steps = [1, *blocks]
    if any(high % low for low, high in zip(steps, [*blocks, extent], strict=True)):
        sizes = " and ".join(str(block) for block in blocks)
        raise TypeRuleError(
            f"{_said(who)}axis {name} must be divisible into blocks of {sizes}; it has {extent} elements"
        )
    sizes = [high // low for low, high in zip(steps, [*blocks, extent], strict=True)]
    return [_Factor(name, step, size) for step, size in zip(steps, sizes, strict=True)][::-1]


def _divided(axes: tuple[Axis, ...], factors: dict[str, list[_Factor]]) -> list[list[_Factor]]:
    """Return the factors of each axis of a layout."""
    blocks = {axis.name: axis.block for axis in axes if axis.block}
    return [
        [
            factor
            for factor in factors[axis.name]
            if (factor.step < axis.block if axis.block else factor.step >= blocks.get(axis.name, 1))
        ]
        for axis in axes
    ]
