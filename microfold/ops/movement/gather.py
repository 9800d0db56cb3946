"""Selection of slices by index."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class Gather(Op, frozen=True):
    """Slices of ``x`` along `axis` that ``indices`` select; the axes of the indices replace the axis."""

    name: ClassVar[str] = "gather"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    axis: int

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require(0 <= self.axis < x.rank, f"gather: axis {self.axis} must be in [0, {x.rank})")
        require(
            indices.dtype in (DType.INT32, DType.INT64),
            f"gather: indices must be int32 or int64; they are {indices.dtype.value}",
        )
        require(x.quant is None or x.quant.axis is None, "gather: per-channel values are not supported")
        return x.with_shape((*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :]))

    def reference(self, x: Tensor, indices: Tensor) -> Array:
        # For an index out of range, which the reference leaves undefined, the nearest slice is used.
        return np.take(x.data, indices.data, axis=self.axis, mode="clip")
