"""Elementwise division of quantised values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import fixed_point, numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import check_binary
from microfold.ops.elementwise.unary_rule import require_per_tensor

# Smallest multiplier that is rejected. A numerator of n bits, including the sign, is shifted left by at least
# 32 - n. The multiplier's left shift is smaller, so the result is never shifted left.
_LIMITS = {DType.INT8: float(1 << 23), DType.UINT8: float(1 << 23), DType.INT16: float(1 << 15)}


@register
class QuantizedDiv(Op, frozen=True):
    """Quotient of two quantised values, broadcast as in numpy, computed with a 31-bit reciprocal.

    The reference shifts small quotients by more than 31 bits, which is undefined in C. Such quotients are
    less than half a step, so they are 0 here. Division by 0 returns the highest or the lowest value; 0 / 0 is
    0.

    Source:
    https://github.com/tensorflow/tflite-micro/blob/main/tensorflow/lite/kernels/internal/reference/div.h
    """

    name: ClassVar[str] = "quantized_div"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST

    out: ElementType

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        result = check_binary(self.name, first, second, self.out, tuple(_LIMITS))
        require_per_tensor(self.name, first=first, second=second, output=self.out)
        assert first.quant is not None and second.quant is not None
        self.multiplier(first.quant, second.quant)  # raises an error if there is no multiplier
        return result

    def multiplier(self, first: Quant, second: Quant) -> Multiplier:
        """Return the multiplier of ``scale_1 / (scale_2 * scale_out)``.

        For int8, TFLM is the reference, which computes it in double. For other types, LiteRT is the
        reference, which uses float32.
        """
        assert self.out.quant is not None
        if self.out.dtype is DType.INT8:
            real = first.scale / (second.scale * self.out.quant.scale)
        else:
            divisor = np.float32(second.scale) * np.float32(self.out.quant.scale)
            with np.errstate(all="ignore"):
                real = float(np.float32(first.scale) / divisor)
        return numerics.quantize_multiplier(real, _LIMITS[self.out.dtype])

    def reference(self, first: Tensor, second: Tensor) -> Array:
        assert first.type.quant is not None and second.type.quant is not None
        assert self.out.quant is not None
        a = first.data.astype(np.int64) - first.type.quant.zero_point
        b = second.data.astype(np.int64) - second.type.quant.zero_point
        a, b = np.broadcast_arrays(np.where(b < 0, -a, a), np.abs(b))
        mantissa, shift = self.multiplier(first.type.quant, second.type.quant)
        zeros = 32 - fixed_point.bit_length(np.maximum(b, 1))
        inverse = fixed_point.reciprocal_of_one_plus((np.maximum(b, 1) << zeros) - (1 << 31))
        headroom = 31 - fixed_point.bit_length(np.where(a < 0, ~a, a))
        quotient = numerics.saturating_rounding_doubling_high_mul(a << headroom, inverse)
        exponent = headroom + 31 - zeros - shift
        scaled = numerics.multiply_by_quantized_multiplier(quotient, mantissa, -np.minimum(exponent, 31))
        beyond = np.sign(a) << 20
        steps = np.where(b == 0, beyond, np.where(exponent > 31, 0, scaled))
        return numerics.clamp(steps + self.out.quant.zero_point, *self.out.dtype.range, self.out.dtype)
