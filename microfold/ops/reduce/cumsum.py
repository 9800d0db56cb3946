"""Cumulative sum."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class Cumsum(Op, frozen=True):
    """Sum of all elements up to each element along an axis, for unquantised values.

    Attributes:
        exclusive: whether the element itself is excluded.
        reverse: whether sums start at the end.
    """

    name: ClassVar[str] = "cumsum"

    axis: int
    exclusive: bool
    reverse: bool

    def infer(self, x: TensorType) -> TensorType:
        require(0 <= self.axis < x.rank, f"cumsum: axis {self.axis} must be in [0, {x.rank})")
        require(
            x.dtype in (DType.FLOAT32, DType.INT32, DType.INT64) and x.quant is None,
            f"cumsum: {x.dtype.value} is not supported; float32, int32 and int64 are",
        )
        return x

    def reference(self, x: Tensor) -> Array:
        data = np.flip(x.data, self.axis) if self.reverse else x.data
        total = np.cumsum(data, axis=self.axis, dtype=data.dtype)
        if self.exclusive:
            total = np.roll(total, 1, axis=self.axis)
            total[(slice(None),) * self.axis + (0,)] = 0
        return np.ascontiguousarray(np.flip(total, self.axis) if self.reverse else total)
