"""Logistic and tanh in 16-bit fixed point, bit-exact with LiteRT's integer LSTM.

The algorithms are the same as in `fixed_point`, with gemmlowp's operators on int16 (fixedpoint/fixedpoint.h):
each product is rounded to 16 bits. ``Qm`` is a signed 16-bit fixed-point number with m integer bits.
"""

from __future__ import annotations

import numpy as np

from microfold.arithmetic.numerics import rounding_divide_by_pot
from microfold.ir.types import Array

MAX = (1 << 15) - 1
EXP_OF_POWERS = (25520, 19875, 12055, 4435, 600, 11, 0)  # exp(-2^k) in Q0 for k = -2 .. 4
EXP_MINUS_ONE_EIGHTH = 28918
ONE_THIRD = 10923
LARGEST_INTEGER_BITS = 6
LARGEST_EXP_BITS = 5  # with more integer bits, exp is zero below -32


def high_mul(a: Array, b: Array | int) -> Array:
    """Return ``a * b / 2^15``, rounded half up; (-1) * (-1) saturates."""
    return np.minimum((a.astype(np.int64) * b + (1 << 14)) >> 15, MAX)


def _shift_left(x: Array, bits: int) -> Array:
    return np.clip(x << bits, -MAX - 1, MAX)


def exp_on_negative_values(x: Array, integer_bits: int) -> Array:
    """Return ``exp(x)`` in Q0 for x <= 0 in Q`integer_bits` (at most 7)."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    x = np.asarray(x, np.int64)
    reduced = (x & (quarter - 1)) - quarter  # in [-1/4, 0)
    result = _exp_small(reduced << integer_bits)
    remainder = reduced - x
    for exponent, factor in zip(range(-2, integer_bits), EXP_OF_POWERS, strict=False):
        chosen = (remainder & (1 << (fraction_bits + exponent))) != 0
        result = np.where(chosen, high_mul(result, factor), result)
    if integer_bits > LARGEST_EXP_BITS:
        result = np.where(x < -(32 << fraction_bits), 0, result)
    return np.where(x == 0, MAX, result)


def _exp_small(x: Array) -> Array:
    """Return ``exp(x)`` in Q0 for x in [-1/4, 0) in Q0, by a Taylor polynomial around -1/8."""
    y = x + (1 << 12)
    y2 = high_mul(y, y)
    y3 = high_mul(y2, y)
    y4_over_4 = rounding_divide_by_pot(high_mul(y2, y2), 2)
    high_terms = rounding_divide_by_pot(high_mul(y4_over_4 + y3, ONE_THIRD) + y2, 1)
    return np.minimum(EXP_MINUS_ONE_EIGHTH + high_mul(y + high_terms, EXP_MINUS_ONE_EIGHTH), MAX)


def _reciprocal(x: Array) -> Array:
    """Return ``1 / (1 + x)`` in Q1 for x in [0, 1) in Q0, by three Newton steps."""
    half_denominator = (x + MAX + 1) >> 1
    estimate = 23130 + high_mul(half_denominator, -15420)
    for _ in range(3):
        error = (1 << 13) - high_mul(half_denominator, estimate)
        estimate = estimate + _shift_left(high_mul(estimate, error), 2)
    return estimate


def logistic(x: Array, integer_bits: int) -> Array:
    """Return ``1 / (1 + exp(-x))`` in Q0 for x in Q`integer_bits`, int64."""
    x = np.asarray(x, np.int64)
    positive = _shift_left(_reciprocal(exp_on_negative_values(-np.abs(x), integer_bits)), 1)
    return np.where(x == 0, 1 << 14, np.where(x > 0, positive, MAX - positive))


def tanh(x: Array, integer_bits: int) -> Array:
    """Return ``tanh(x)`` in Q0 for x in Q`integer_bits` (at most 6), int64."""
    x = np.asarray(x, np.int64)
    # exp(-2|x|): the same bits, read with one more integer bit, have twice the value.
    exponential = exp_on_negative_values(-np.abs(x), integer_bits + 1)
    positive = _shift_left(_reciprocal(exponential) - (1 << 13), 2)
    return np.where(x == 0, 0, np.where(x > 0, positive, -positive))
