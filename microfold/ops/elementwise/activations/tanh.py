"""Hyperbolic tangent."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.arithmetic import fixed_point
from microfold.arithmetic.numerics import rounding_divide_by_pot
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.activations.logistic import (
    Int16Scaling,
    check_int8_scale,
    check_int16_scale,
    int16_scaling,
    interpolate_sigmoid,
    scale_int16,
)
from microfold.ops.elementwise.unary_rule import check_unary


@register
class Tanh(Op, frozen=True):
    """Hyperbolic tangent. The int8 result has scale 1/128, the int16 result 1/32768; zero point 0."""

    name: ClassVar[str] = "tanh"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        result = check_unary("tanh", x, self.out)
        check_int16_scale("tanh", x)
        check_int8_scale("tanh", x)
        if x.dtype is not DType.FLOAT32:
            scale = 1 / 128 if x.dtype is DType.INT8 else 1 / 32768
            quant = self.out.quant
            assert quant is not None
            require(
                math.isclose(quant.scale, scale, rel_tol=1e-3) and quant.zero_point == 0,
                f"tanh: the {x.dtype.value} result must have scale {scale} and zero point 0; "
                f"they are {quant.scale} and {quant.zero_point}",
            )
        return result

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            return np.tanh(x.data)
        assert x.type.quant is not None
        if x.type.dtype is DType.INT16:
            return tanh_int16(x.data, int16_scaling(x.type.quant.scale, (0, 1)))
        parameters = fixed_point.q4_parameters(x.type.quant.scale)
        centred = x.data.astype(np.int32) - x.type.quant.zero_point
        q0 = fixed_point.tanh(fixed_point.to_q4(centred, parameters), 4)
        inside = np.clip(rounding_divide_by_pot(q0, 31 - 7), -128, 127)
        limits = np.where(centred <= -parameters.radius, -128, 127)
        return np.where(np.abs(centred) < parameters.radius, inside, limits).astype(np.int8)


def tanh_int16(x: Array, scaling: Int16Scaling) -> Array:
    """Return the reference's int16 hyperbolic tangent, with result scale 1/32768."""
    # tanh(x) = 2 * sigmoid(2x) - 1: one fraction bit less doubles the argument.
    scaled = scale_int16(x, scaling)
    magnitude = np.abs(scaled)
    result = np.where((magnitude >> 8) >= 255, 0xFFFF << 8, interpolate_sigmoid(magnitude, 8))
    one_half, rounding = 1 << 23, 1 << 7
    result = np.where(scaled >= 0, result - one_half + rounding, one_half - result + rounding - 1)
    return (result >> 8).astype(np.int16)
