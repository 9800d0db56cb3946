"""Padding with a constant."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.window import Pair


@register
class Pad(Op, frozen=True):
    """Padding around each axis with elements equal to `fill`.

    Attributes:
        padding: (before, after) per axis.
        fill: value in the operand's own representation; the zero point represents real zero.
    """

    name: ClassVar[str] = "pad"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True
    open_ended: ClassVar[tuple[str, ...]] = ("fill",)

    padding: tuple[Pair, ...]
    fill: float

    def infer(self, x: TensorType) -> TensorType:
        require(
            len(self.padding) == x.rank and all(min(pair) >= 0 for pair in self.padding),
            f"pad: needs two non-negative numbers for each of {x.rank} axes; they are {self.padding}",
        )
        require(x.quant is None or x.quant.axis is None, "pad: per-channel values are not supported")
        if not x.dtype.is_float:
            low, high = (0, 1) if x.dtype is DType.BOOL else x.dtype.range
            require(
                low <= self.fill <= high and float(self.fill).is_integer(),
                f"pad: the fill must be an integer in [{low}, {high}]; it is {self.fill}",
            )
        return x.with_shape(tuple(n + sum(pair) for n, pair in zip(x.shape, self.padding, strict=True)))

    def reference(self, x: Tensor) -> Array:
        if not self.padding:  # numpy cannot pad a scalar
            return x.data
        return np.pad(x.data, self.padding, constant_values=x.data.dtype.type(self.fill))
