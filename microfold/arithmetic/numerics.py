"""Fixed-point arithmetic of the reference kernels, in numpy.

The named reference is TensorFlow Lite for Microcontrollers' reference kernels, built with two roundings
(`TFLITE_SINGLE_ROUNDING` undefined). Formulas follow gemmlowp's fixed-point scheme as its documentation
describes it (https://github.com/google/gemmlowp/blob/master/doc/quantization.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from microfold.errors import TypeRuleError
from microfold.ir.types import Array, DType, ElementType

Int32Array = NDArray[np.int32]

# Smallest real that is too large as a multiplier of quantised values: the references shift by at most 30
# bits. Shifted values that overflow int32 wrap around, both in the references and in the generated C.
MAX_MULTIPLIER = 1 << 30
# Smallest real that is too large for kernels in which shifted 8-bit differences must fit 32 bits.
SMALL_MULTIPLIER = 1 << 24


class Multiplier(NamedTuple):
    """Real multiplier as ``mantissa * 2**(shift - 31)``; the mantissa is 0 or in [2^30, 2^31)."""

    mantissa: int
    shift: int


def quantize_multiplier(real: float, limit: float = MAX_MULTIPLIER) -> Multiplier:
    """Return the multiplier nearest to a non-negative real (in double, rounded half away from zero).

    Exponents below -31 yield zero.

    Args:
        limit: exclusive upper bound of the real.

    Raises:
        TypeRuleError: the real is outside of [0, limit).
    """
    if not 0 <= real < limit:
        raise TypeRuleError(
            f"a multiplier made of scales must be in [0, {limit:g}); it is {real:g}; quantise the model again"
        )
    if real == 0.0:
        return Multiplier(0, 0)
    fraction, shift = math.frexp(real)
    mantissa = round_half_away(fraction * (1 << 31))
    if mantissa == 1 << 31:
        mantissa //= 2
        shift += 1
    if shift < -31:
        return Multiplier(0, 0)
    return Multiplier(mantissa, shift)


def effective_scale(factors: Sequence[float], divisor: float = 1.0) -> float:
    """Return the product of real factors, divided by a divisor, in double from the first step on.

    Every operator computes the real value of its multipliers with this function. The reference's kernels
    convert to double before they multiply or divide scales, whatever their published source says
    (`docs/reference.md`).
    """
    return math.prod(map(float, factors)) / float(divisor)


def litert_multiplier(scale: float, divisor: float) -> Multiplier:
    """Return the multiplier of ``scale / divisor`` for LiteRT kernels that divide scales in float32."""
    return quantize_multiplier(float(np.float32(scale) / np.float32(divisor)))


def effective_multiplier(
    factors: Sequence[float], divisor: float = 1.0, limit: float = MAX_MULTIPLIER
) -> Multiplier:
    """Return `quantize_multiplier` of the `effective_scale`."""
    return quantize_multiplier(effective_scale(factors, divisor), limit)


def round_half_away(real: float) -> int:
    """Return the nearest integer, ties away from zero (C's `round`)."""
    whole = int(real)
    return whole + (int(math.copysign(1, real)) if abs(real - whole) >= 0.5 else 0)


def round_half_away_array(real: Array) -> Array:
    """Return `round_half_away` of each element, in the array's own floating-point type."""
    whole = np.trunc(real)
    return np.where(np.abs(real - whole) >= 0.5, whole + np.sign(real), whole)


def saturating_rounding_doubling_high_mul(a: Array, b: Array | int) -> Int32Array:
    """Return the rounded high half of ``2*a*b``; ties go up in magnitude for positive products.

    The definition is ``(a*b + (a*b >= 0 ? 2^30 : 1 - 2^30)) / 2^31`` with truncating division, saturated for
    ``a == b == -2^31``. Truncating division of a negative n is ``floor((n + 2^31 - 1) / 2^31)``. In both
    cases, the result is therefore ``floor((a*b + 2^30) / 2^31)``.
    """
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    return np.minimum((product + (1 << 30)) >> 31, (1 << 31) - 1).astype(np.int32)


def rounding_divide_by_pot(x: Array, exponent: Array | int) -> Int32Array:
    """Return ``x / 2^exponent`` rounded to nearest, ties away from zero; exponent in [0, 31]."""
    x = np.asarray(x, np.int64)
    exponent = np.asarray(exponent, np.int64)
    mask = (np.int64(1) << exponent) - 1
    remainder = x & mask
    threshold = (mask >> 1) + (x < 0)
    return ((x >> exponent) + (remainder > threshold)).astype(np.int32)


def multiply_by_quantized_multiplier(x: Array, mantissa: Array | int, shift: Array | int) -> Int32Array:
    """Return ``x * mantissa * 2^(shift - 31)`` as the reference computes it: two roundings, int32 left shift.

    `mantissa` and `shift` broadcast against `x`, for example one per channel in the last axis.
    """
    shift = np.asarray(shift, np.int64)
    left = np.maximum(shift, 0)
    right = np.maximum(-shift, 0)
    shifted = (np.asarray(x, np.int64) << left).astype(np.int32)
    return rounding_divide_by_pot(saturating_rounding_doubling_high_mul(shifted, mantissa), right)


def multiply_int64_by_quantized_multiplier(x: Array, mantissa: Array | int, shift: Array | int) -> Int32Array:
    """Apply the reference's 64-bit multiplication, used for int16 activations with 64-bit accumulators.

    The mantissa is reduced to 16 bits, ``(mantissa + 2^15) >> 16`` (saturating at 0x7fff), and the product is
    rounded once: ``(x * reduced + 2^(14 - shift)) >> (15 - shift)``.
    """
    mantissa = np.asarray(mantissa, np.int64)
    reduced = np.where(mantissa < 0x7FFF0000, (mantissa + (1 << 15)) >> 16, 0x7FFF)
    total = 15 - np.asarray(shift, np.int64)
    product = np.asarray(x, np.int64) * reduced + (np.int64(1) << (total - 1))
    return (product >> total).astype(np.int32)


def quantize(real: float, element: ElementType) -> int:
    """Return the integer that represents a real, saturated to the type (float32 arithmetic as in C)."""
    assert element.quant is not None
    low, high = element.dtype.range
    with np.errstate(over="ignore"):
        scaled = float(np.float32(real) / np.float32(element.quant.scale))
    # Values beyond int32 are saturated in any case.
    limited = min(max(scaled, -(2.0**31)), 2.0**31)
    return min(max(element.quant.zero_point + round_half_away(limited), low), high)


def clamp(x: Array, low: int, high: int, dtype: DType) -> Array:
    """Clamp to [low, high] and convert to the type."""
    return np.clip(x, low, high).astype(dtype.numpy)


def requantize(
    x: Array, zero_point: int, multiplier: tuple[Array | int, Array | int], out: ElementType
) -> Array:
    """Return ``(x - zero_point) * multiplier`` in the integers of `out`, saturated to its range."""
    assert out.quant is not None
    centred = np.asarray(x, np.int64) - zero_point
    scaled = multiply_by_quantized_multiplier(centred, *multiplier).astype(np.int64)
    return clamp(scaled + out.quant.zero_point, *out.dtype.range, out.dtype)
