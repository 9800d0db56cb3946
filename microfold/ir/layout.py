"""Layouts: which axis stands where, as strings of axis names.

``NHWC`` is batch, height, width, channels, slowest first. A blocked layout splits an axis in two: in
``NCHW4c`` the axis ``C`` counts blocks and ``4c``, the innermost here, is the channel within a block, so that
a value of [N, H, W, C] channels-last pixels is [N, C / 4, H, W, 4]. The notation is TVM's
(https://tvm.apache.org/docs/reference/api/python/tir/tir.html, BijectiveLayout).
"""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np

from microfold.errors import TypeRuleError
from microfold.ir.types import Array, Shape
from microfold.support.frozen import frozen

NHWC = "NHWC"


@frozen
class Axis:
    """One axis of a layout.

    Attributes:
        name: the letter of the axis, upper case.
        block: extent of an inner axis; 0 for an outer or undivided one.
    """

    name: str
    block: int = 0


@frozen
class LayoutTransform:
    """Elements from one layout to another: split, permute, merge; each a numpy operation.

    Attributes:
        split: shape of the source with divided axes.
        permutation: as in ``numpy.transpose``, of the axes of `split`.
        shape: of the result.
    """

    split: Shape
    permutation: tuple[int, ...]
    shape: Shape

    @property
    def is_identity(self) -> bool:
        """Neither shape nor order change."""
        return self.split == self.shape and self.permutation == tuple(range(len(self.split)))

    def apply(self, array: Array) -> Array:
        """The elements in the other layout."""
        moved = array.reshape(self.split).transpose(self.permutation)
        return np.ascontiguousarray(moved.reshape(self.shape))


@cache
def parse(layout: str) -> tuple[Axis, ...]:
    """The axes of a layout.

    Raises:
        TypeRuleError: it is no layout.
    """
    if not re.fullmatch(r"(?:[A-Z]|(?:[2-9]|[1-9][0-9]+)[a-z])+", layout):
        raise TypeRuleError(
            "a layout is a row of axes, upper-case letters and, for the inner part of a divided axis, its "
            f"extent (2 or more) and the lower-case letter (NHWC, NCHW4c); it is {layout!r}"
        )
    found = re.findall(r"([A-Z])|([0-9]+)([a-z])", layout)
    axes = tuple(Axis(outer) if outer else Axis(inner.upper(), int(block)) for outer, block, inner in found)
    if len({(axis.name, axis.block > 0) for axis in axes}) < len(axes):
        raise TypeRuleError(f"a layout names each axis once, divided ones twice; it is {layout!r}")
    whole = {axis.name for axis in axes if not axis.block}
    alone = sorted({axis.name for axis in axes} - whole)
    if alone:
        raise TypeRuleError(f"{layout!r} has the inner part of axis {alone[0]}, but not the outer one")
    return axes


def check_image(layout: str, who: str = "") -> None:
    """Raise `TypeRuleError` unless the layout is one of images: of the axes N, H, W and C."""
    if {axis.name for axis in parse(layout)} != set(NHWC):
        raise TypeRuleError(
            f"{_said(who)}an image has the axes N, H, W and C, as in NHWC; the layout is {layout!r}"
        )


def is_blocked(layout: str) -> bool:
    """Some axis is divided."""
    return any(axis.block for axis in parse(layout))


def between(source: str, target: str, shape: Shape, who: str = "") -> LayoutTransform:
    """How a value of `shape` in layout `source` gets into layout `target`.

    Args:
        who: whom errors name.

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
    return LayoutTransform(
        split=tuple(factor.size for axis in split for factor in axis),
        permutation=tuple(position[factor] for axis in order for factor in axis),
        shape=tuple(math.prod(factor.size for factor in axis) for axis in order),
    )


def permutation(source: str, target: str) -> tuple[int, ...]:
    """The transpose from one layout to another, neither blocked.

    Raises:
        TypeRuleError: they have different axes, or one is blocked.
    """
    if is_blocked(source) or is_blocked(target):
        raise TypeRuleError(f"a transpose does not divide axes: {source} to {target} needs layout_transform")
    return between(source, target, (1,) * len(parse(source))).permutation


def extents_of(layout: str, shape: Shape, who: str = "") -> dict[str, int]:
    """The whole extent of each axis of a value in the layout, by its name.

    Raises:
        TypeRuleError: the shape is not one of the layout.
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


@frozen
class _Factor:
    """A part of an axis; one step along it is `step` elements of the axis."""

    axis: str
    step: int
    size: int


def _factors(name: str, extent: int, axes: tuple[Axis, ...], who: str) -> list[_Factor]:
    """The parts of an axis, outermost first, that all the layouts' parts consist of."""
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
    """The factors of each axis of a layout."""
    blocks = {axis.name: axis.block for axis in axes if axis.block}
    return [
        [
            factor
            for factor in factors[axis.name]
            if (factor.step < axis.block if axis.block else factor.step >= blocks.get(axis.name, 1))
        ]
        for axis in axes
    ]
