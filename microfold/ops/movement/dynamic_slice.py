"""Slice of a value at a computed position."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Shape, Tensor, TensorType


@register
class DynamicSlice(Op, frozen=True):
    """Elements of ``x`` from ``start`` on, which is clamped so that the slice is inside.

    Attributes:
        size: number of elements along each axis.
    """

    name: ClassVar[str] = "dynamic_slice"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    size: Shape

    def infer(self, x: TensorType, start: TensorType) -> TensorType:
        require(
            len(self.size) == x.rank
            and all(1 <= n <= whole for n, whole in zip(self.size, x.shape, strict=True)),
            f"dynamic_slice: the slice must fit into {x}; its size is {self.size}",
        )
        require(
            start.dtype in (DType.INT32, DType.INT64) and start.quant is None and start.shape == (x.rank,),
            f"dynamic_slice: the start must be int32 or int64 [{x.rank}]; it is {start}",
        )
        require(
            x.quant is None or x.quant.axis is None, "dynamic_slice: per-channel values are not supported"
        )
        return x.with_shape(self.size)

    def reference(self, x: Tensor, start: Tensor) -> Array:
        spare = np.array(x.type.shape, np.int64) - self.size
        first = np.clip(start.data.astype(np.int64), 0, spare)
        return x.data[tuple(slice(a, a + n) for a, n in zip(first.tolist(), self.size, strict=True))].copy()
