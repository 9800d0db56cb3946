"""Softmax over the last axis.

The int8 form is the reference's fixed-point one, see `microfold.fixed_point`; the int16 form interpolates in two
tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from microfold import numerics
from microfold.fixed_point import INT32_MAX, exp_on_negative_values, reciprocal_of_one_plus
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.numerics import rounding_divide_by_pot, saturating_rounding_doubling_high_mul

INPUT_INTEGER_BITS = 5  # scaled differences are Q5
SUM_INTEGER_BITS = 12  # sums of exponentials are Q12


class SoftmaxParameters(NamedTuple):
    """Fixed-point parameters of the int8 form."""

    mantissa: int
    left_shift: int
    difference_min: int


def softmax_parameters(beta: float, quant: Quant) -> SoftmaxParameters:
    """How a difference of int8 inputs becomes Q5; smaller differences than the minimum give exp = 0."""
    real = min(beta * quant.scale * (1 << (31 - INPUT_INTEGER_BITS)), INT32_MAX)
    mantissa, shift = numerics.quantize_multiplier(real)
    radius = ((1 << INPUT_INTEGER_BITS) - 1) * (1 << (31 - INPUT_INTEGER_BITS)) / (1 << shift)
    return SoftmaxParameters(mantissa, shift, -math.floor(radius))


def exp_table(beta: float, quant: Quant) -> Array:
    """int32 [256]: exp in Q0 of ``scale * (i - 255)``, zero where the reference drops the term."""
    parameters = softmax_parameters(beta, quant)
    difference = np.arange(-255, 1, dtype=np.int64)
    scaled = (difference << parameters.left_shift).astype(np.int32)
    values = exp_on_negative_values(
        saturating_rounding_doubling_high_mul(scaled, parameters.mantissa), INPUT_INTEGER_BITS
    )
    return np.where(difference >= parameters.difference_min, values, 0).astype(np.int32)


@register
@dataclass(frozen=True)
class Softmax(Op):
    """``exp(beta * x) / sum(exp(beta * x))`` along the last axis.

    int8 input gives int8 or int16 with scale 1/256 or 1/65536 and the lowest value as zero point.
    """

    name: ClassVar[str] = "softmax"

    beta: float
    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(x.rank >= 1, "softmax: the input must have an axis")
        require(self.beta > 0, f"softmax: beta must be positive; it is {self.beta}")
        pair = (x.dtype, self.out.dtype)
        require(
            pair in ((DType.FLOAT32, DType.FLOAT32), (DType.INT8, DType.INT8), (DType.INT8, DType.INT16)),
            f"softmax: {x.dtype.value} to {self.out.dtype.value} is not supported",
        )
        if x.dtype is DType.INT8:
            require(x.quant is not None and x.quant.axis is None, "softmax: the input must have one scale")
            low = self.out.dtype.range[0]
            quant = self.out.quant
            require(
                quant is not None and quant.axis is None and quant.zero_point == low,
                f"softmax: the {self.out.dtype.value} output must have zero point {low}; it has {quant}",
            )
        return x.with_element(self.out)

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            shifted = (x.data - x.data.max(axis=-1, keepdims=True)) * np.float32(self.beta)
            values = np.exp(shifted, dtype=np.float32)
            return (values / values.sum(axis=-1, keepdims=True)).astype(np.float32)
        assert x.type.quant is not None
        difference = x.data.astype(np.int32) - x.data.max(axis=-1, keepdims=True)
        values = exp_table(self.beta, x.type.quant)[difference + 255]
        total = rounding_divide_by_pot(values, SUM_INTEGER_BITS).sum(axis=-1, keepdims=True, dtype=np.int64)
        headroom = 32 - np.ceil(np.log2(total + 1)).astype(np.int64)  # leading zeros of the 32-bit sum
        fraction = ((total << headroom) - (1 << 31)).astype(np.int32)
        scaled = saturating_rounding_doubling_high_mul(reciprocal_of_one_plus(fraction), values)
        low, high = self.out.dtype.range
        bits = 8 * self.out.dtype.itemsize
        exponent = SUM_INTEGER_BITS - headroom + 31 - bits
        result = rounding_divide_by_pot(scaled, exponent).astype(np.int64) + low
        return numerics.clamp(np.where(values == 0, low, result), low, high, self.out.dtype)
