"""Conversion of quantised integers to real values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class Dequantize(Op, frozen=True):
    """``scale * (x - zero_point)`` as float32, with one scale per tensor or per channel.

    Per tensor, the product is computed in double and rounded once. Per channel, it is a float32 product.
    """

    name: ClassVar[str] = "dequantize"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE
    any_zero_point: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype in (DType.INT4, DType.INT8, DType.UINT8, DType.INT16, DType.INT32),
            f"dequantize: {x.dtype.value} is not supported",
        )
        require(x.quant is not None, f"dequantize: {x} must be quantised")
        return TensorType(DType.FLOAT32, x.shape)

    def reference(self, x: Tensor) -> Array:
        quant = x.type.quant
        assert quant is not None
        if quant.axis is None:
            with np.errstate(over="ignore"):  # infinite if beyond float32
                return (quant.scale * (x.data.astype(np.int64) - quant.zero_point)).astype(np.float32)
        along = [-1 if axis == quant.axis else 1 for axis in range(x.type.rank)]
        zero_points = np.array(quant.zero_points, np.int64).reshape(along)
        scales = np.array(quant.scales, np.float32).reshape(along)
        return scales * (x.data.astype(np.int64) - zero_points).astype(np.float32)
