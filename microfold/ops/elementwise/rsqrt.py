"""Reciprocal square root."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.arithmetic import fixed_point, numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary

EXTRA_BITS = 20  # additional fraction bits between the two multiplications


@register
class Rsqrt(Op, frozen=True):
    """``1 / sqrt(x)``. For integers, it is the largest value if x <= 0, which the reference rejects."""

    name: ClassVar[str] = "rsqrt"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        result = check_unary("rsqrt", x, self.out)
        if x.quant is not None and not x.dtype.is_float:
            multiplier = self.multiplier(x.quant)  # raises an error if there is none
            require(
                multiplier.shift - EXTRA_BITS >= -31 and multiplier.mantissa > 0,
                f"rsqrt: the result's scale is too large for inputs of scale {x.quant.scale:g}",
            )
        return result

    def multiplier(self, x: Quant) -> Multiplier:
        """Return the multiplier of ``1 / (sqrt(scale_in) * scale_out)``, computed in double."""
        assert self.out.quant is not None
        return numerics.effective_multiplier(
            [1.0],
            numerics.effective_scale([math.sqrt(x.scale), self.out.quant.scale]),
            numerics.SMALL_MULTIPLIER,
        )

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            with np.errstate(all="ignore"):
                return (np.float32(1) / np.sqrt(x.data)).astype(np.float32)
        assert x.type.quant is not None
        assert self.out.quant is not None
        centred = x.data.astype(np.int32) - x.type.quant.zero_point
        mantissa, shift = fixed_point.inverse_sqrt(np.maximum(centred, 1))
        multiply = numerics.multiply_by_quantized_multiplier
        root = multiply(np.ones_like(centred), mantissa, shift + EXTRA_BITS)
        outer = self.multiplier(x.type.quant)
        result = multiply(root, outer.mantissa, outer.shift - EXTRA_BITS).astype(np.int64)
        low, high = self.out.dtype.range
        result = np.where(centred <= 0, high, result + self.out.quant.zero_point)
        return numerics.clamp(result, low, high, self.out.dtype)
