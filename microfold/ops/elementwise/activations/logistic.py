"""Logistic function (sigmoid)."""

from __future__ import annotations

import math
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np

from microfold.arithmetic import fixed_point
from microfold.arithmetic.numerics import rounding_divide_by_pot
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary

# Below this, the reference's float32 logistic is the exponential function: relatively up to 1.2e-4 larger.
EXPONENTIAL_BELOW = np.float32(-9)


class Int16Scaling(NamedTuple):
    """Input scaling of the reference's int16 logistic and tanh: ``(x * multiplier + round) >> shift``."""

    multiplier: int
    shift: int


def nearest_power_of_two(scale: float) -> tuple[float, int]:
    """Return the binary logarithm of a scale, in float32 as in the reference, and the nearest integer."""
    log2 = float(np.log(np.float32(scale)) * (np.float32(1) / np.log(np.float32(2))))
    return log2, math.floor(abs(log2) + 0.5) * (1 if log2 >= 0 else -1)


def int16_scaling(scale: float, power_of_two_shifts: tuple[int, ...]) -> Int16Scaling:
    """Return the scaling of the input to steps of 1/(3 * 4096).

    Args:
        scale: scale of the input.
        power_of_two_shifts: left shifts for which the reference uses a power-of-two scale without a
            multiplier.
    """
    log2, nearest = nearest_power_of_two(scale)
    left_shift = 12 + nearest
    if abs(log2 - nearest) < 1e-3 and left_shift in power_of_two_shifts:
        return Int16Scaling(3 << left_shift, 0)
    multiplier, shift = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        shift += 1
        multiplier *= 2.0
    return Int16Scaling(int(multiplier), shift)


def check_int16_scale(op: str, x: TensorType) -> None:
    """Check that the reference's multiplier of an int16 input is positive and has 16 bits.

    A multiplier of 0 makes the reference shift a signed integer beyond 32 bits.
    """
    if x.dtype is not DType.INT16 or x.quant is None:
        return
    smallest, largest = 2.0**-31 / (4096 * 3), 32767 / (4096 * 3)
    require(
        smallest <= x.quant.scale <= largest,
        f"{op}: the scale of an int16 input must be in [{smallest:.4g}, {largest:.4g}]; "
        f"it is {x.quant.scale:g}",
    )


def check_int8_scale(op: str, x: TensorType) -> None:
    """Check that the reference's left shift of an int8 input to Q4 is less than 32 bits."""
    if x.dtype is DType.INT8 and x.quant is not None:
        scale = x.quant.scale
        require(
            2.0**-27 <= scale < 16,
            f"{op}: the scale of an int8 input must be in [2^-27, 16); it is {scale:g}",
        )


@cache
def sigmoid_table() -> Array:
    """Return the logistic function at multiples of 1/24 in Q0.16, uint16 [256].

    Samples are raised by half the error of linear interpolation in the middle of their interval.
    """
    x = np.arange(256) / 24
    half, step = 1 / 48, 1 / 24

    def logistic(x: Array) -> Array:
        return 65536 / (1 + np.exp(-x))

    error = logistic(x + half) - (logistic(x) + logistic(x + step)) / 2
    table = np.rint(logistic(x) + error / 2)
    table[-1] = 65535  # the reference saturates from here on
    return table.astype(np.uint16)


@register
class Logistic(Op, frozen=True):
    """``1 / (1 + exp(-x))``; for float32 below -9, ``exp(x)``, as in the reference.

    The int8 result has scale 1/256 and zero point -128, the int16 result scale 1/32768.
    """

    name: ClassVar[str] = "logistic"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        result = check_unary("logistic", x, self.out)
        check_int16_scale("logistic", x)
        check_int8_scale("logistic", x)
        if x.dtype is not DType.FLOAT32:
            scale, zero_point = (1 / 256, -128) if x.dtype is DType.INT8 else (1 / 32768, 0)
            quant = self.out.quant
            assert quant is not None
            require(
                math.isclose(quant.scale, scale, rel_tol=1e-3) and quant.zero_point == zero_point,
                f"logistic: the {x.dtype.value} result must have scale {scale} and zero point {zero_point}; "
                f"they are {quant.scale} and {quant.zero_point}",
            )
        return result

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            with np.errstate(over="ignore"):
                inside = np.float32(1) / (np.float32(1) + np.exp(-x.data))
                return np.where(x.data < EXPONENTIAL_BELOW, np.exp(x.data), inside).astype(np.float32)
        assert x.type.quant is not None
        if x.type.dtype is DType.INT16:
            return logistic_int16(x.data, int16_scaling(x.type.quant.scale, (0,)))
        parameters = fixed_point.q4_parameters(x.type.quant.scale)
        centred = x.data.astype(np.int32) - x.type.quant.zero_point
        q0 = fixed_point.logistic(fixed_point.to_q4(centred, parameters), 4)
        inside = np.clip(rounding_divide_by_pot(q0, 31 - 8) - 128, -128, 127)
        limits = np.where(centred <= -parameters.radius, -128, 127)
        return np.where(np.abs(centred) < parameters.radius, inside, limits).astype(np.int8)


def interpolate_sigmoid(magnitude: Array, fraction_bits: int) -> Array:
    """Return the sigmoid table at ``magnitude / 2^fraction_bits``, with `fraction_bits` more bits, int64."""
    index = magnitude >> fraction_bits
    low = np.minimum(index, 254)
    first = sigmoid_table()[low].astype(np.int64)
    second = sigmoid_table()[low + 1].astype(np.int64)
    fraction = magnitude & ((1 << fraction_bits) - 1)
    return (first << fraction_bits) + fraction * (second - first)


def scale_int16(x: Array, scaling: Int16Scaling) -> Array:
    """Return the input on the table's scale, int64."""
    rounding = (1 << (scaling.shift - 1)) if scaling.shift > 0 else 0
    wide = x.astype(np.int64) * scaling.multiplier + rounding
    return wide.astype(np.int32).astype(np.int64) >> scaling.shift


def logistic_int16(x: Array, scaling: Int16Scaling) -> Array:
    """Return the reference's int16 logistic function, with result scale 1/32768."""
    scaled = scale_int16(x, scaling)
    magnitude = np.abs(scaled)
    result = np.where((magnitude >> 9) >= 255, 0x7FFF << 10, interpolate_sigmoid(magnitude, 9))
    half = 1 << 9
    result = np.where(scaled >= 0, result + half, (1 << 25) - result + half - 1)
    return (result >> 10).astype(np.int16)
