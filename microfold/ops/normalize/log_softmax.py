"""Logarithm of softmax over the last axis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import fixed_point, numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary
from microfold.ops.normalize.softmax import (
    INPUT_INTEGER_BITS,
    SUM_INTEGER_BITS,
    exp_table,
    softmax_parameters,
)

_OUTPUT_INTEGER_BITS = 4


@register
class LogSoftmax(Op, frozen=True):
    """``x - log(sum(exp(x)))`` along the last axis. The int8 result has scale 1/16 and zero point 127."""

    name: ClassVar[str] = "log_softmax"

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(x.rank >= 1 and x.size > 0, f"log_softmax: {x} must have an axis and elements")
        result = check_unary("log_softmax", x, self.out, (DType.INT8, DType.FLOAT32))
        if x.dtype is DType.INT8:
            quant = self.out.quant
            assert quant is not None
            assert x.quant is not None
            softmax_parameters(1.0, x.quant)  # raises an error if there are none
            require(
                quant.scale == 1 / 16 and quant.zero_point == 127,
                f"log_softmax: the int8 result must have scale {1 / 16} and zero point 127; "
                f"they are {quant.scale} and {quant.zero_point}",
            )
        return result

    def reference(self, x: Tensor) -> Array:
        difference = x.data.astype(np.float32 if x.type.dtype.is_float else np.int64)
        difference = difference - difference.max(axis=-1, keepdims=True)
        if x.type.dtype.is_float:
            # In the reference's order: if one term dominates the sum, the logarithm depends on the order.
            total = np.add.accumulate(np.exp(difference), axis=-1, dtype=np.float32)[..., -1:]
            return (difference - np.log(total)).astype(np.float32)
        assert x.type.quant is not None
        values = exp_table(1.0, x.type.quant)[difference + 255]
        total = numerics.rounding_divide_by_pot(values, SUM_INTEGER_BITS).sum(axis=-1, keepdims=True)
        log_total = fixed_point.log(total, SUM_INTEGER_BITS, INPUT_INTEGER_BITS)
        scaled = scaled_differences(x.type.quant, difference).astype(np.int64)
        shift = 31 - INPUT_INTEGER_BITS - _OUTPUT_INTEGER_BITS
        result = numerics.rounding_divide_by_pot(scaled - log_total, shift).astype(np.int64) + 127
        lowest = _lowest_difference(log_total, x.type.quant)
        return np.where(difference > lowest, np.clip(result, -128, 127), -128).astype(np.int8)


def scaled_differences(quant: Quant, difference: Array) -> Array:
    """Return differences from the largest input, in [-255, 0], in Q5, int32."""
    parameters = softmax_parameters(1.0, quant)
    return numerics.multiply_by_quantized_multiplier(difference, parameters.mantissa, parameters.left_shift)


def inverse_multiplier(quant: Quant) -> Multiplier:
    """Return the inverse of the multiplier of `scaled_differences`."""
    parameters = softmax_parameters(1.0, quant)
    return numerics.quantize_multiplier((1 << (31 - parameters.left_shift)) / parameters.mantissa)


def _lowest_difference(log_total: Array, quant: Quant) -> Array:
    """Return the largest difference for which the reference returns the lowest value."""
    limit = numerics.multiply_by_quantized_multiplier(
        log_total.astype(np.int64) - (1 << 31), *inverse_multiplier(quant)
    )
    return np.maximum(softmax_parameters(1.0, quant).difference_min - 1, limit)
