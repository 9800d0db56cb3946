"""Softmax over the last axis.

The int8 form is the reference's fixed-point algorithm, see `microfold.arithmetic.fixed_point`. The int16 form
interpolates in two tables.
"""

from __future__ import annotations

import math
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.fixed_point import (
    INT32_MAX,
    bit_length,
    exp_on_negative_values,
    reciprocal_of_one_plus,
)
from microfold.arithmetic.numerics import (
    Multiplier,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise import lookup
from microfold.ops.elementwise.unary_rule import require_per_tensor

INPUT_INTEGER_BITS = 5  # scaled differences are Q5
SUM_INTEGER_BITS = 12  # sums of exponentials are Q12


# Scale and zero point of the result, by input and output type.
_OUTPUTS = {
    (DType.INT8, DType.INT8): (1 / 256, -128),
    (DType.INT8, DType.INT16): (1 / 65536, -32768),
    (DType.INT16, DType.INT16): (1 / 32768, 0),
}


class SoftmaxParameters(NamedTuple):
    """Conversion of input differences to Q5. Below `difference_min`, the exponential is 0."""

    mantissa: int
    left_shift: int
    difference_min: int


def softmax_parameters(beta: float, quant: Quant) -> SoftmaxParameters:
    """Return the parameters of the int8 form.

    Raises:
        TypeRuleError: there are none, because the reference can shift differences to the left only.
    """
    real = min(numerics.effective_scale([beta, quant.scale, 1 << (31 - INPUT_INTEGER_BITS)]), INT32_MAX)
    require(
        real > 1, f"softmax: beta times the input's scale must exceed 2^-26; it is {beta * quant.scale:g}"
    )
    mantissa, shift = numerics.quantize_multiplier(real, limit=1 << 31)
    radius = ((1 << INPUT_INTEGER_BITS) - 1) * (1 << (31 - INPUT_INTEGER_BITS)) / (1 << shift)
    return SoftmaxParameters(mantissa, shift, -math.floor(radius))


def exp_table(beta: float, quant: Quant) -> Array:
    """Return exp in Q0 of ``scale * (i - 255)``, int32 [256]; zero if the reference drops the term."""
    parameters = softmax_parameters(beta, quant)
    difference = np.arange(-255, 1, dtype=np.int64)
    scaled = (difference << parameters.left_shift).astype(np.int32)
    values = exp_on_negative_values(
        saturating_rounding_doubling_high_mul(scaled, parameters.mantissa), INPUT_INTEGER_BITS
    )
    return np.where(difference >= parameters.difference_min, values, 0).astype(np.int32)


@cache
def int16_exp_table() -> Array:
    """Return the table of ``exp(x)`` for x in [-10, 0] over the int16 range, in Q0.15; [513]."""
    step = np.float32(10.0) / np.float32(65535)
    return lookup.int16_table(
        lookup.rounded_once(np.exp),
        (step * np.float32(-65535), step * np.float32(0)),
        _symmetric_output(),
    )


@cache
def int16_reciprocal_table() -> Array:
    """Return the table of ``1 / (1 + x)`` for x in [0, 1] over the int16 range, in Q0.15; [513]."""
    step = np.float32(1.0) / np.float32(65535)
    return lookup.int16_table(
        _reciprocal_of_one_plus,
        (step * np.float32(0), step * np.float32(65535)),
        _symmetric_output(),
    )


def _reciprocal_of_one_plus(x: Array) -> Array:
    return (np.float32(1) / (np.float32(1) + x)).astype(np.float32)


def _symmetric_output() -> lookup.FloatRange:
    step = np.float32(2.0) / np.float32(65535)
    return step * np.float32(-32768), step * np.float32(32767)


def int16_multiplier(beta: float, quant: Quant) -> Multiplier:
    """Return the multiplier from differences of int16 inputs to table indices over [-10, 0]."""
    return numerics.effective_multiplier([quant.scale, beta], 10.0 / 65535.0)


def _softmax_int16(x: Array, multiplier: Multiplier) -> Array:
    difference = x.astype(np.int64) - x.max(axis=-1, keepdims=True)
    scaled = numerics.multiply_by_quantized_multiplier(difference, *multiplier).astype(np.int64)
    index = np.clip(scaled + 32767, -32768, 32767).astype(np.int16)
    values = lookup.int16_lookup(index, int16_exp_table()).astype(np.int64)
    total = values.sum(axis=-1, keepdims=True)
    headroom = 32 - bit_length(total)  # leading zeros of the 32-bit sum
    normalised = ((total << (headroom - 1)) + (1 << 13)) >> 14
    index = np.clip(normalised - ((1 << 15) + (1 << 16)), -32768, 32767).astype(np.int16)
    reciprocal = lookup.int16_lookup(index, int16_reciprocal_table()).astype(np.int64)
    shift = 31 - headroom
    result = (values * reciprocal + (np.int64(1) << (shift - 1))) >> shift
    return np.clip(result, 0, 32767).astype(np.int16)


@register
class Softmax(Op, frozen=True):
    """``exp(beta * x) / sum(exp(beta * x))`` along the last axis.

    The result of int8 input is int8 or int16, with scale 1/256 or 1/65536 and the lowest value as zero point.
    The result of int16 input is int16 with scale 1/32768 and zero point 0.
    """

    name: ClassVar[str] = "softmax"
    any_zero_point: ClassVar[bool] = True

    beta: float
    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(x.rank >= 1, "softmax: the input must have an axis")
        require(self.beta > 0, f"softmax: beta must be positive; it is {self.beta}")
        pair = (x.dtype, self.out.dtype)
        require(
            pair == (DType.FLOAT32, DType.FLOAT32) or pair in _OUTPUTS,
            f"softmax: {x.dtype.value} to {self.out.dtype.value} is not supported",
        )
        if x.dtype is not DType.FLOAT32:
            require_per_tensor("softmax", input=x)
            require(x.size > 0, f"softmax: {x} has no elements")
            assert x.quant is not None
            require(
                x.dtype is not DType.INT16 or x.quant.zero_point == 0,
                f"softmax: the zero point of an int16 input must be 0; it is {x.quant.zero_point}",
            )
            parameters = int16_multiplier if x.dtype is DType.INT16 else softmax_parameters
            parameters(self.beta, x.quant)  # raises an error if there are none
            scale, zero_point = _OUTPUTS[pair]
            quant = self.out.quant
            require(
                quant is not None
                and quant.axis is None
                and math.isclose(quant.scale, scale, rel_tol=1e-3)
                and quant.zero_point == zero_point,
                f"softmax: {self.out.dtype.value} output of {x.dtype.value} input must have scale {scale} "
                f"and zero point {zero_point}; its quantisation is {quant}",
            )
        return x.with_element(self.out)

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            shifted = (x.data - x.data.max(axis=-1, keepdims=True)) * np.float32(self.beta)
            values = np.exp(shifted, dtype=np.float32)
            return (values / values.sum(axis=-1, keepdims=True)).astype(np.float32)
        assert x.type.quant is not None
        if x.type.dtype is DType.INT16:
            return _softmax_int16(x.data, int16_multiplier(self.beta, x.type.quant))
        difference = x.data.astype(np.int32) - x.data.max(axis=-1, keepdims=True)
        values = exp_table(self.beta, x.type.quant)[difference + 255]
        total = rounding_divide_by_pot(values, SUM_INTEGER_BITS).sum(axis=-1, keepdims=True, dtype=np.int64)
        headroom = 32 - bit_length(total)  # leading zeros of the 32-bit sum
        fraction = ((total << headroom) - (1 << 31)).astype(np.int32)
        scaled = saturating_rounding_doubling_high_mul(reciprocal_of_one_plus(fraction), values)
        low, high = self.out.dtype.range
        bits = 8 * self.out.dtype.itemsize
        exponent = SUM_INTEGER_BITS - headroom + 31 - bits
        result = rounding_divide_by_pot(scaled, exponent).astype(np.int64) + low
        return numerics.clamp(np.where(values == 0, low, result), low, high, self.out.dtype)
