"""Exponential, reciprocal, logistic and tanh in 32-bit fixed point, bit-exact with the reference.

The polynomials and Newton steps are gemmlowp's (https://github.com/google/gemmlowp, fixedpoint/fixedpoint.h
documents them). ``Qm`` is a signed 32-bit fixed-point number with m integer bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from microfold.arithmetic.numerics import (
    Multiplier,
    multiply_by_quantized_multiplier,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from microfold.ir.types import Array

INT32_MAX = (1 << 31) - 1
# exp(-2^k) in Q0 for k = -2 .. 4
_EXP_OF_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def exp_on_negative_values(x: Array, integer_bits: int) -> Array:
    """Return ``exp(x)`` in Q0 for x <= 0 in Q`integer_bits` (at most 5), int32 to int32."""
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    x = np.asarray(x, np.int32)
    reduced = (x & (quarter - 1)) - np.int32(quarter)  # in [-1/4, 0)
    result = _exp_small(reduced << integer_bits)
    remainder = reduced - x
    for exponent, factor in zip(range(-2, integer_bits), _EXP_OF_POWERS, strict=False):
        scaled = saturating_rounding_doubling_high_mul(result, factor)
        result = np.where(remainder & (1 << (fraction_bits + exponent)), scaled, result)
    return np.where(x == 0, INT32_MAX, result).astype(np.int32)


def _exp_small(x: Array) -> Array:
    """Return ``exp(x)`` in Q0 for x in [-1/4, 0) in Q0, by a Taylor polynomial around -1/8."""
    mul = saturating_rounding_doubling_high_mul
    y = x + np.int32(1 << 28)
    y2 = mul(y, y)
    y3 = mul(y2, y)
    y4_over_4 = rounding_divide_by_pot(mul(y2, y2), 2)
    high_terms = rounding_divide_by_pot(mul(y4_over_4 + y3, 715827883) + y2, 1)
    exp_minus_one_eighth = 1895147668
    return np.int32(exp_minus_one_eighth) + mul(y + high_terms, exp_minus_one_eighth)


def _half_sum_with_one(x: Array) -> Array:
    """Return ``(x + 1) / 2`` in Q0, rounded, for x in [0, 1)."""
    return ((np.asarray(x, np.int64) + INT32_MAX + 1) >> 1).astype(np.int32)


def _newton_reciprocal(half_denominator: Array) -> Array:
    """Return ``1 / (2 * half_denominator)`` in Q2 for half_denominator in [1/2, 1) in Q0 (3 Newton steps)."""
    mul = saturating_rounding_doubling_high_mul
    estimate = np.int32(1515870810) + mul(half_denominator, -1010580540)
    for _ in range(3):
        error = np.int32(1 << 29) - mul(half_denominator, estimate)
        estimate = (estimate + saturating_shift_left(mul(estimate, error), 2)).astype(np.int32)
    return estimate


def reciprocal_of_one_plus(x: Array) -> Array:
    """Return ``1 / (1 + x)`` in Q0 for x in [0, 1) in Q0."""
    return saturating_shift_left(_newton_reciprocal(_half_sum_with_one(x)), 1)


def _one_minus_over_one_plus(x: Array) -> Array:
    """Return ``(1 - x) / (1 + x)`` in Q0 for x in [0, 1) in Q0."""
    return saturating_shift_left(_newton_reciprocal(_half_sum_with_one(x)) - np.int32(1 << 29), 2)


def saturating_shift_left(x: Array, bits: int) -> Array:
    """Return ``x << bits`` in int32, saturated."""
    return np.clip(np.asarray(x, np.int64) << bits, -(1 << 31), INT32_MAX).astype(np.int32)


def logistic(x: Array, integer_bits: int) -> Array:
    """Return ``1 / (1 + exp(-x))`` in Q0 for x in Q`integer_bits`."""
    x = np.asarray(x, np.int32)
    positive = reciprocal_of_one_plus(exp_on_negative_values(-np.abs(x), integer_bits))
    result = np.where(x > 0, positive, np.int32(INT32_MAX) - positive)
    return np.where(x == 0, 1 << 30, result).astype(np.int32)


def tanh(x: Array, integer_bits: int) -> Array:
    """Return ``tanh(x)`` in Q0 for x in Q`integer_bits`."""
    x = np.asarray(x, np.int32)
    # exp(-2|x|): the same bits, read with one more integer bit, have twice the value.
    positive = _one_minus_over_one_plus(exp_on_negative_values(-np.abs(x), integer_bits + 1))
    return np.where(x == 0, 0, np.where(x > 0, positive, -positive)).astype(np.int32)


def inverse_sqrt(x: Array) -> tuple[Array, Array]:
    """Return ``1 / sqrt(x)`` of positive int32 values as mantissas and shifts: ``mantissa * 2^(shift - 31)``.

    It needs five Newton steps from 1 in Q3, on x scaled to [1, 4) by an even power of two.
    """
    mul = saturating_rounding_doubling_high_mul
    scaled = np.asarray(x, np.int64)
    right = np.full(scaled.shape, 11, np.int64)
    while (scaled >= 1 << 29).any():
        large = scaled >= 1 << 29
        scaled = np.where(large, scaled // 4, scaled)
        right = right + large
    # Scale up by an even number of bits, to [2^27, 2^29).
    pairs = np.where(scaled > 1, (31 - bit_length(scaled)) // 2 - 1, 0)
    right = right - pairs
    scaled = (scaled << (2 * pairs)).astype(np.int32)
    value = scaled >> 1
    half = rounding_divide_by_pot(value, 1)
    three_halves = (1 << 28) + (1 << 27)
    estimate = np.full(scaled.shape, 1 << 28, np.int32)
    for _ in range(5):
        cube = saturating_shift_left(mul(mul(estimate, estimate), estimate), 6)
        estimate = saturating_shift_left(mul(estimate, three_halves) - mul(half, cube), 3)
    mantissa = mul(estimate, 1518500250).astype(np.int64)
    mantissa = np.where(right < 0, mantissa << np.maximum(-right, 0), mantissa)
    shift = -np.maximum(right, 0)
    tiny = np.asarray(x) <= 1
    return np.where(tiny, INT32_MAX, mantissa).astype(np.int32), np.where(tiny, 0, shift)


def log(x: Array, integer_bits: int, out_integer_bits: int) -> Array:
    """Return ``log(x)`` in Q`out_integer_bits` for x >= 1 in Q`integer_bits`, int32.

    ``log(x) = k log(2) + log(r)`` with r near ``sqrt(sqrt(1/2))``; log(r) is a quotient of polynomials.
    There are two candidates for the power of two, half a power apart; the one with the smaller r is used.
    """
    mul = saturating_rounding_doubling_high_mul
    bits = out_integer_bits + 1  # of the exponents and of the sum
    sqrt_half, sqrt_sqrt_half, log_2 = 1518500250, 1805811301, 1488522236
    numerator_factor, denominator_square, denominator_one, denominator_linear = (
        117049297,  # 11/240 * 2^(1/4)
        127690142,  # 1/20 * 2^(1/4)
        1057819769,  # 2 / 2^(1/4) - 2^(1/4)
        638450708,  # 1/4 * 2^(1/4)
    )
    quarter = rounding_divide_by_pot(np.asarray(1 << 29), bits).astype(np.int64)
    x = np.asarray(x, np.int64)

    zeros = 32 - bit_length(x)
    first = saturating_shift_left(mul(_shift_left_by(x, zeros - 1), sqrt_half), 1)
    first_power = _shift_left_by(integer_bits - zeros, 31 - bits).astype(np.int64) + quarter

    zeros = 31 - bit_length(mul(x.astype(np.int32), sqrt_half))
    second = _shift_left_by(x, zeros)
    second_power = _shift_left_by(integer_bits - zeros, 31 - bits).astype(np.int64) - quarter

    r = np.minimum(first, second)
    power = np.clip(np.maximum(first_power, second_power), -(1 << 31), INT32_MAX).astype(np.int32)
    total = r.astype(np.int64) + sqrt_sqrt_half
    p = ((total + 1) >> 1).astype(np.int32)
    q = (2 * (r.astype(np.int64) - sqrt_sqrt_half)).astype(np.int32)
    square = mul(q, q)
    numerator = mul(q, r) + mul(mul(q, square), numerator_factor)
    denominator = mul(p, np.int32(denominator_one) + q + mul(square, denominator_square)) + mul(
        q, denominator_linear
    )
    quotient = mul(rounding_divide_by_pot(numerator, bits), reciprocal_of_one_plus(denominator))
    return saturating_shift_left(mul(power, log_2).astype(np.int64) + quotient, 1)


def _shift_left_by(x: Array, bits: Array | int) -> Array:
    """Return `saturating_shift_left` by a separate number of bits for each element."""
    return np.clip(np.asarray(x, np.int64) << bits, -(1 << 31), INT32_MAX).astype(np.int32)


def bit_length(x: Array) -> Array:
    """Return the number of bits of non-negative values below 2^52."""
    return np.frexp(np.asarray(x, np.float64))[1].astype(np.int64)


class Q4Parameters(NamedTuple):
    """Conversion of centred int8 values to Q4. From `radius` on, the function has its limit value."""

    multiplier: Multiplier
    radius: int


def q4_parameters(scale: float) -> Q4Parameters:
    """Return the parameters of the int8 logistic and tanh for an input scale."""
    mantissa, shift = math.frexp(scale * (1 << 27))
    radius = math.floor(15 * (1 << 27) / 2.0**shift)
    return Q4Parameters(Multiplier(math.floor(mantissa * (1 << 31) + 0.5), shift), radius)


def to_q4(centred: Array, parameters: Q4Parameters) -> Array:
    """Return centred int8 values in Q4; the result has no meaning beyond the radius."""
    inside = np.clip(centred, -parameters.radius, parameters.radius)
    return multiply_by_quantized_multiplier(inside, *parameters.multiplier)
