"""Requantisation of int32 accumulators: the shortest form that is exact for the accumulators of a layer.

The reference scales by ``m * 2^-(31 + e)`` with two roundings (see `numerics`). With ``SRDHM(x, m) =
floor((x*m + 2^30) / 2^31)`` (m > 0, no saturation) and ``RDBPOT(t, e) = (t + 2^(e-1) - [t < 0]) >> e``, the
nested floors merge. For E = e + 1,

    u = floor(4*x*m / 2^32) + c,   c = 1 + [e > 0] * 2^(E-1) + zero_point * 2^E,   y = (u - 2*[t < 0]) >> E

is the output including its zero point: one multiply-high with addend, and one shift. ``[t < 0]`` equals ``[x
< 0]`` except for ``m = 2^30, x = -1``. This correction can only change results at or below the zero point.
Therefore it is not needed if the output is clamped there (ReLU), or if accumulators are never negative. With
e = 0 there is no second rounding, and the correction must be omitted.
"""

from __future__ import annotations

import enum

import numpy as np
from msgspec import Struct

from microfold.arithmetic import numerics
from microfold.ir.types import Array

# Largest magnitude of a constant output before it is clamped.
LARGEST_CONSTANT = 1 << 28


class RequantizeForm(str, enum.Enum):
    """Instruction sequence of a requantisation; the value is the suffix of the helper's C name.

    SHORT corrects negative accumulators, SHORT_RELU does not. WRAPPED is GENERAL for 64-bit accumulators that
    may exceed 32 bits, for which the reference wraps around.
    """

    SHORT_RELU = "short_relu"
    SHORT = "short"
    GENERAL = "general"
    WRAPPED = "wrapped"


class Requantization(Struct, frozen=True, eq=False):
    """Form and records of a requantisation, int32 [channels, 4].

    SHORT forms: (bias, m, c, E). GENERAL and WRAPPED: (bias, m, zero_point, shift) with the reference's
    signed shift.
    """

    form: RequantizeForm
    records: Array


def fold_zero_point(weights: Array, bias: Array | None, zero_point: int) -> Array:
    """Return the bias of ``sum(w * x)`` over raw inputs, int64 [channels]; weights are [channels, K]."""
    total = -zero_point * weights.astype(np.int64).sum(axis=1)
    return total if bias is None else total + bias.astype(np.int64)


def accumulator_bounds(weights: Array, bias: Array, low: int, high: int) -> tuple[Array, Array]:
    """Return the exact bounds of ``bias + sum(w * x)`` per channel for x in [low, high], int64."""
    wide = weights.astype(np.int64)
    positive = np.where(wide > 0, wide, 0).sum(axis=1)
    negative = np.where(wide < 0, wide, 0).sum(axis=1)
    return bias + positive * low + negative * high, bias + positive * high + negative * low


def plan_requantization(
    bias: Array,
    bounds: tuple[Array, Array],
    mantissas: Array,
    shifts: Array,
    zero_point: int,
    low: int,
    *,
    multiple: int = 1,
) -> Requantization:
    """Return the shortest form that is provably exact.

    Args:
        bias: int64 [channels], zero point folded in.
        bounds: smallest and largest accumulator per channel.
        mantissas, shifts: the reference's multipliers per channel.
        zero_point: zero point of the output.
        low: smallest output after clamping.
        multiple: common divisor of all accumulators.
    """
    m = mantissas.astype(np.int64)
    e = -shifts.astype(np.int64)
    magnitude = np.maximum(np.abs(bounds[0]), np.abs(bounds[1]))
    # Requantisation is monotone: equal results at both bounds mean one result for all sums.
    lowest, highest = (
        numerics.multiply_by_quantized_multiplier(bound, mantissas, shifts).astype(np.int64)
        for bound in bounds
    )
    constant = (lowest == highest) & (magnitude < 1 << 29)
    shift = e + 1
    addend = 1 + np.where(e > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    addend = addend + zero_point * (np.int64(1) << np.maximum(shift, 0))
    largest = ((magnitude * 4 * m) >> 32) + 1 + np.abs(addend) + 2
    exact = (m > 0) & (e >= 0) & (shift <= 30) & (magnitude < 1 << 29) & (largest < 1 << 31)
    # (c - 2) >> 2 and c >> 2 both yield the constant, so the sign correction does not matter. The constant is
    # limited to 32 bits, far outside of all output ranges.
    fixed = 4 * np.clip(lowest + zero_point, -LARGEST_CONSTANT, LARGEST_CONSTANT) + 2
    m_short, addend, shift = (
        np.where(constant, known, free) for known, free in ((0, m), (fixed, addend), (2, shift))
    )
    uncorrected = constant | (exact & ((low >= zero_point) | (e == 0) | (bounds[0] >= 0)))
    corrected = constant | (exact & (e > 0) & ((m != 1 << 30) | (multiple > 1)))
    for form, fits in ((RequantizeForm.SHORT_RELU, uncorrected), (RequantizeForm.SHORT, corrected)):
        if bool(np.all(fits)):
            return Requantization(form, _records(bias, m_short, addend, shift))
    return Requantization(
        RequantizeForm.GENERAL, _records(bias, m, np.full_like(m, zero_point), shifts.astype(np.int64))
    )


def wrapped_requantization(bias: Array, mantissas: Array, shifts: Array, zero_point: int) -> Requantization:
    """Return the requantisation of accumulators that may exceed 32 bits; biases count modulo 2^32."""
    m = mantissas.astype(np.int64)
    return Requantization(
        RequantizeForm.WRAPPED, _records(bias, m, np.full_like(m, zero_point), shifts.astype(np.int64))
    )


def _records(*columns: Array) -> Array:
    return np.stack([np.asarray(c, np.int64).astype(np.int32) for c in columns], axis=1)
