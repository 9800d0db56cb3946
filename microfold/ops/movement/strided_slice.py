"""Slice with strides."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Shape, Tensor, TensorType


@register
class StridedSlice(Op, frozen=True):
    """Slice with `size` elements ``begin, begin + stride, …`` along each axis; strides may be negative."""

    name: ClassVar[str] = "strided_slice"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    begin: tuple[int, ...]
    size: Shape
    strides: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(
            len(self.begin) == len(self.size) == len(self.strides) == x.rank,
            f"strided_slice: needs begin, size and stride for each of {x.rank} axes; they are "
            f"{list(self.begin)}, {list(self.size)} and {list(self.strides)}",
        )
        for extent, begin, size, stride in zip(x.shape, self.begin, self.size, self.strides, strict=True):
            last = begin + (size - 1) * stride
            require(
                size >= 1 and stride != 0 and 0 <= begin < extent and 0 <= last < extent,
                f"strided_slice: {size} elements from {begin} in steps of {stride} must be in [0, {extent})",
            )
        require(
            x.quant is None or x.quant.axis is None, "strided_slice: per-channel values are not supported"
        )
        return x.with_shape(self.size)

    def reference(self, x: Tensor) -> Array:
        index = np.ix_(
            *(
                begin + stride * np.arange(size)
                for begin, size, stride in zip(self.begin, self.size, self.strides, strict=True)
            )
        )
        return x.data[index]
