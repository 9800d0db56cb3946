"""Hard swish."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary


class HardSwishParameters(NamedTuple):
    """16-bit multipliers and shifts of the int8 form."""

    output: int
    output_shift: int
    reluish: int
    reluish_shift: int


def _mul16(a: Array, b: Array | int) -> Array:
    """Return the rounded high half of ``2 * a * b`` of 16-bit values, which are never both -32768 here."""
    product = np.asarray(a, np.int64) * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    magnitude = np.abs(nudged) >> 15
    return np.minimum(np.where(nudged < 0, -magnitude, magnitude), 32767)


def _shift_left_16(x: Array, bits: int) -> Array:
    return np.clip(x << bits, -32768, 32767)


def _divide_by_pot_16(x: Array, exponent: int) -> Array:
    """Return `numerics.rounding_divide_by_pot` as the reference computes it in 16 bits.

    From 2^16 on, its mask of the lost bits becomes -1, so that non-negative values become 1 and negative ones
    -1.
    """
    if exponent < 16:
        return numerics.rounding_divide_by_pot(x, exponent).astype(np.int64)
    return np.where(x >= 0, 1, -1)


@register
class HardSwish(Op, frozen=True):
    """``x * min(max(x + 3, 0), 6) / 6``."""

    name: ClassVar[str] = "hard_swish"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        result = check_unary("hard_swish", x, self.out, (DType.INT8, DType.FLOAT32))
        if x.dtype is DType.INT8:
            assert x.quant is not None
            require(
                self.parameters(x.quant).output_shift <= 0,
                "hard_swish: the input's scale must be less than 128 times the output's",
            )
        return result

    def parameters(self, x: Quant) -> HardSwishParameters:
        """Return the multipliers for inputs that are first scaled up by 128."""
        assert self.out.quant is not None
        fine = float(np.float32(x.scale) / np.float32(128))  # denormal scales lose bits, as in the reference
        output = numerics.effective_multiplier([fine], self.out.quant.scale)
        reluish = numerics.effective_multiplier([fine], 3 / 32768)
        return HardSwishParameters(
            _to_16_bits(output.mantissa), output.shift, _to_16_bits(reluish.mantissa), reluish.shift
        )

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            clipped = np.clip(x.data + np.float32(3), np.float32(0), np.float32(6))
            return (x.data * clipped / np.float32(6)).astype(np.float32)
        assert x.type.quant is not None
        assert self.out.quant is not None
        output, output_shift, reluish, reluish_shift = self.parameters(x.type.quant)
        fine = ((x.data.astype(np.int64) - x.type.quant.zero_point) << 7).astype(np.int16).astype(np.int64)
        scaled = _mul16(fine, output)
        # In [-1, 1) as Q0.15: (x + 3) / 3 - 1, saturated.
        gate = fine
        if reluish_shift > 0:
            gate = _shift_left_16(gate, reluish_shift - 1)
        gate = _mul16(gate, reluish)
        if reluish_shift > 0:
            gate = _shift_left_16(gate, 1)
        if reluish_shift < 0:
            gate = _divide_by_pot_16(gate, -reluish_shift)
        gate = (gate + (1 << 15)) >> 1
        product = gate * scaled
        before_shift = np.sign(product) * (np.abs(product) >> 15)
        result = _divide_by_pot_16(before_shift, -output_shift)
        return numerics.clamp(result + self.out.quant.zero_point, *self.out.dtype.range, self.out.dtype)


def _to_16_bits(mantissa: int) -> int:
    """Return the upper half of a 31-bit mantissa, rounded and saturated."""
    return 0x7FFF if mantissa >= (1 << 31) - (1 << 15) else (mantissa + (1 << 15)) >> 16
