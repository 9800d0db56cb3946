"""Requantisation of int32 accumulators: the shortest exact form for the accumulators a layer can have.

The reference scales by ``m * 2^-(31 + e)`` with two roundings (see `numerics`). With ``SRDHM(x, m) =
floor((x*m + 2^30) / 2^31)`` (m > 0, no saturation) and ``RDBPOT(t, e) = (t + 2^(e-1) - [t < 0]) >> e``, the
nested floors merge. For E = e + 1,

    u = floor(4*x*m / 2^32) + c,   c = 1 + [e > 0] * 2^(E-1) + zero_point * 2^E,   y = (u - 2*[t < 0]) >> E

gives the output including its zero point: one multiply-high with addend, one shift. ``[t < 0]`` equals
``[x < 0]`` except for ``m = 2^30, x = -1``. It can only change results at or below the zero point, so it is
not needed where the output is clamped there (ReLU), nor where accumulators are never negative. With e = 0
there is no second rounding, and it must be left out.
"""

from __future__ import annotations

import enum

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.types import Array
from microfold.support.frozen import frozen

# Largest magnitude of an output that does not depend on the sums, before it is clamped.
LARGEST_CONSTANT = 1 << 28


class RequantizeForm(str, enum.Enum):
    """Instruction sequence that requantises; the value ends the helper's C name.

    SHORT corrects negative accumulators, SHORT_RELU does not. WRAPPED is GENERAL for accumulators of 64 bits
    that may leave 32, where the reference wraps round.
    """

    SHORT_RELU = "short_relu"
    SHORT = "short"
    GENERAL = "general"
    WRAPPED = "wrapped"


@frozen(eq=False)
class Requantization:
    """Per-channel constants, int32 [channels, 4]: multiplier, addend, shift behind the bias.

    SHORT forms: (bias, m, c, E). GENERAL and WRAPPED: (bias, m, zero_point, shift) with the reference's
    signed shift.
    """

    form: RequantizeForm
    records: Array


def fold_zero_point(weights: Array, bias: Array | None, zero_point: int) -> Array:
    """int64 [channels]: the bias of ``sum(w * x)`` over raw inputs; weights are [channels, K]."""
    total = -zero_point * weights.astype(np.int64).sum(axis=1)
    return total if bias is None else total + bias.astype(np.int64)


def accumulator_bounds(weights: Array, bias: Array, low: int, high: int) -> tuple[Array, Array]:
    """Exact smallest and largest ``bias + sum(w * x)`` per channel for x in [low, high], int64."""
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
    """The shortest form that is provably exact.

    Args:
        bias: int64 [channels], zero point folded in.
        bounds: smallest and largest accumulator per channel.
        mantissas, shifts: the reference's multipliers per channel.
        zero_point: of the output.
        low: the output's smallest value after clamping.
        multiple: all accumulators are multiples of it.
    """
    m = mantissas.astype(np.int64)
    e = -shifts.astype(np.int64)
    magnitude = np.maximum(np.abs(bounds[0]), np.abs(bounds[1]))
    # Requantisation is monotonic: equal at both bounds means equal everywhere, whatever the multiplier.
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
    # (c - 2) >> 2 and c >> 2 are both the constant: it does not matter whether the form corrects. It is
    # limited so that it has 32 bits, far outside of all output ranges.
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
    """For accumulators that may leave 32 bits; biases count modulo 2^32."""
    m = mantissas.astype(np.int64)
    return Requantization(
        RequantizeForm.WRAPPED, _records(bias, m, np.full_like(m, zero_point), shifts.astype(np.int64))
    )


def _records(*columns: Array) -> Array:
    return np.stack([np.asarray(c, np.int64).astype(np.int32) for c in columns], axis=1)
