"""Reinterpretation of bytes as elements of another type."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType


@register
class Bitcast(Op, frozen=True):
    """Bytes of ``x``, little-endian, as elements of another type.

    If these are smaller, an axis is appended that counts them. If they are larger, the last axis is dropped.
    """

    name: ClassVar[str] = "bitcast"
    any_zero_point: ClassVar[bool] = True

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        for dtype in (x.dtype, self.out.dtype):
            require(dtype not in (DType.BOOL, DType.INT4), f"bitcast: {dtype.value} is not supported")
        for element in (x, self.out):
            require(
                element.quant is None or element.quant.axis is None,
                "bitcast: per-channel values are not supported",
            )
        before, after = x.dtype.itemsize, self.out.dtype.itemsize
        shape = x.shape
        if before > after:
            shape = (*x.shape, before // after)
        elif before < after:
            require(
                x.rank > 0 and x.shape[-1] == after // before,
                f"bitcast: the last axis of {x} must have the {after // before} elements of one "
                f"{self.out.dtype.value}",
            )
            shape = x.shape[:-1]
        return TensorType(self.out.dtype, shape, self.out.quant)

    def reference(self, x: Tensor) -> Array:
        shape = self.infer(x.type).shape
        return np.ascontiguousarray(x.data).reshape(-1).view(self.out.dtype.numpy).reshape(shape)
