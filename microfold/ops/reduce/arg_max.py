"""Index of the largest or smallest element."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


class _ArgExtremum(Op, frozen=True):
    pattern: ClassVar[Pattern] = Pattern.REDUCTION
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    axis: int
    dtype: DType

    def infer(self, x: TensorType) -> TensorType:
        require(0 <= self.axis < x.rank, f"{self.name}: axis {self.axis} must be in [0, {x.rank})")
        require(x.size > 0, f"{self.name}: {x} has no elements")
        require(
            self.dtype in (DType.INT32, DType.INT64),
            f"{self.name}: the index must be int32 or int64; it is {self.dtype.value}",
        )
        return TensorType(self.dtype, (*x.shape[: self.axis], *x.shape[self.axis + 1 :]))


@register
class ArgMax(_ArgExtremum, frozen=True):
    """Index of the largest element along an axis, the first of equals; the axis is dropped."""

    name: ClassVar[str] = "arg_max"

    def reference(self, x: Tensor) -> Array:
        return np.asarray(x.data.argmax(axis=self.axis)).astype(self.dtype.numpy)


@register
class ArgMin(_ArgExtremum, frozen=True):
    """Index of the smallest element along an axis, the first of equals; the axis is dropped."""

    name: ClassVar[str] = "arg_min"

    def reference(self, x: Tensor) -> Array:
        return np.asarray(x.data.argmin(axis=self.axis)).astype(self.dtype.numpy)
