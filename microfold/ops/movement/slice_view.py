"""Slice without a copy."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Shape, Tensor, TensorType


@register
class SliceView(Op, frozen=True):
    """Slice of `size` elements along each axis from `begin` on, which must be one block of memory."""

    name: ClassVar[str] = "slice_view"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    is_view: ClassVar[bool] = True
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    begin: tuple[int, ...]
    size: Shape

    def infer(self, x: TensorType) -> TensorType:
        require(
            len(self.begin) == len(self.size) == x.rank,
            f"slice_view: needs begin and size for each of {x.rank} axes; they are {list(self.begin)} and "
            f"{list(self.size)}",
        )
        for extent, begin, size in zip(x.shape, self.begin, self.size, strict=True):
            require(
                begin >= 0 and size >= 1 and begin + size <= extent,
                f"slice_view: {size} elements from {begin} must be in [0, {extent})",
            )
        require(is_block(x.shape, self.size), f"slice_view: {list(self.size)} of {x} is not one block")
        require(x.quant is None or x.quant.axis is None, "slice_view: per-channel values are not supported")
        return x.with_shape(self.size)

    def view_start(self, x: TensorType) -> int:
        return int(np.ravel_multi_index(self.begin, x.shape)) if x.rank else 0

    def reference(self, x: Tensor) -> Array:
        return x.data[tuple(slice(b, b + n) for b, n in zip(self.begin, self.size, strict=True))]


def is_block(shape: Shape, size: Shape) -> bool:
    """Return whether a slice is one block of memory: whole axes after the first one longer than 1."""
    return all(
        part == whole or math.prod(size[:axis]) == 1
        for axis, (part, whole) in enumerate(zip(size, shape, strict=True))
    )
