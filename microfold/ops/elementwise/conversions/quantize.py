"""Quantisation of real values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic.numerics import round_half_away_array
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import require_per_tensor


@register
class Quantize(Op, frozen=True):
    """float32 to int8, uint8 or int16: ``round(x / scale) + zero_point``, saturated; float32 division."""

    name: ClassVar[str] = "quantize"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype is DType.FLOAT32 and self.out.dtype in (DType.INT8, DType.UINT8, DType.INT16),
            f"quantize: {x.dtype.value} to {self.out.dtype.value} is not supported",
        )
        require_per_tensor("quantize", output=self.out)
        return x.with_element(self.out)

    def reference(self, x: Tensor) -> Array:
        assert self.out.quant is not None
        with np.errstate(over="ignore", invalid="ignore"):  # infinities
            scaled = round_half_away_array(x.data / np.float32(self.out.quant.scale)).astype(np.float64)
        # Beyond int32, C's conversion is undefined; this one saturates.
        limited = np.clip(np.nan_to_num(scaled, nan=0.0), -(2.0**31), 2.0**31 - 1)
        return np.clip(limited + self.out.quant.zero_point, *self.out.dtype.range).astype(
            self.out.dtype.numpy
        )
