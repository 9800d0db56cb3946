"""Cumulative sum of int8."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary
from microfold.ops.reduce.cumsum import Cumsum

SUM_BITS = 19  # sums are in units of 2^-19, and wrap around at 32 bits


@register
class QuantizedCumsum(Cumsum, frozen=True):
    """`Cumsum` of int8, as in TFLM.

    Sums start with a stored 0, not with the zero point. All results of an input with a zero point other than
    0 are therefore off by the zero point.
    """

    name: ClassVar[str] = "quantized_cumsum"

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(0 <= self.axis < x.rank, f"{self.name}: axis {self.axis} must be in [0, {x.rank})")
        result = check_unary(self.name, x, self.out, (DType.INT8,))
        assert x.quant is not None
        self.multiplier(x.quant)  # raises an error if there is none
        return result

    def multiplier(self, x: Quant) -> Multiplier:
        """Return the multiplier of sums. The reference asserts that it is less than 1."""
        assert self.out.quant is not None
        divisor = numerics.effective_scale([1 << SUM_BITS, self.out.quant.scale])
        return numerics.effective_multiplier([x.scale], divisor, limit=1)

    def reference(self, x: Tensor) -> Array:
        assert x.type.quant is not None
        centred = x.data.astype(np.int64) - x.type.quant.zero_point
        plain = Tensor(TensorType(DType.INT64, x.type.shape), centred)
        sums = (super().reference(plain) - x.type.quant.zero_point) << SUM_BITS
        return numerics.requantize(sums.astype(np.int32), 0, self.multiplier(x.type.quant), self.out)
