"""Requantisation for kernels that shift their sums anyway, or can have them shifted by their weights.

`multiply_high` has the proof for the form that multiplies four times the accumulator. In the same way, for
any s >= 1, E = e + s and e >= 1,

    u = floor(x * 2^(s+1) * m / 2^32) + c,   c = 2^(s-1) + 2^(E-1) + zero_point * 2^E
    y = (u - 2^s * [x < 0]) >> E

so that s can make up for the channels' different e, and E is the same for all: an immediate in the code. The
correction by ``[x < 0]`` can only change results at or below the zero point: not needed where the output is
clamped there (ReLU), nor where sums are never negative.

Channels whose clamped output is the same for all inputs need neither weights nor multiplier: they are given
x = 0, m = 0, c = (y + 1/2) * 2^E.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.types import Array
from microfold.kernels.requantize.multiply_high import RequantizeForm
from microfold.support.frozen import frozen

# Tried in this order: 12 fits nearly all layers, and few values mean few functions.
COMMON_SHIFTS = (12, 10, 16, 8)
# Weights shifted this far still fit int16, and sums in upper lanes of paired weights are 8 bits up already.
LARGEST_LEFT = 8


@frozen(eq=False)
class SmladRequantization:
    """How to requantise.

    Attributes:
        form: SHORT and SHORT_RELU from shifted sums, GENERAL from the sums themselves.
        shift: E if all channels have the same, else 0.
        left: int64 [channels], s + 1: how far sums must be shifted to the left; 0 in GENERAL.
        matrix: the weights, zero where the output is constant.
        bounds: smallest and largest accumulator per channel with these weights.
        records: int32 [channels, 4]: bias, multiplier, addend, E; GENERAL: bias, multiplier, zero point, the
            reference's shift.
    """

    form: RequantizeForm
    shift: int
    left: Array
    matrix: Array
    bounds: tuple[Array, Array]
    records: Array


def plan_smlad_requantization(
    matrix: Array,
    bias: Array,
    bounds: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    zero_point: int,
    limits: tuple[int, int],
    *,
    common: bool,
    shifts: Sequence[int] = COMMON_SHIFTS,
    lefts: tuple[int, int] = (2, LARGEST_LEFT),
) -> SmladRequantization:
    """The shortest form that is provably exact.

    Args:
        matrix: weights [channels, K].
        bias: int64 [channels], zero point folded in.
        bounds: smallest and largest accumulator per channel.
        multipliers: the reference's mantissas and shifts per channel.
        zero_point: of the output.
        limits: the output's bounds after clamping.
        common: whether a common shift is wanted.
        shifts: common shifts, in the order in which they are tried.
        lefts: how far sums can be shifted to the left for a common shift, at least 2 and at most.
    """
    m = multipliers[0].astype(np.int64)
    e = -multipliers[1].astype(np.int64)
    magnitude = np.maximum(np.abs(bounds[0]), np.abs(bounds[1]))
    # Requantisation is monotonic unless a left shift overflows: equal ends mean one value for all sums.
    ends = [
        np.clip(
            numerics.multiply_by_quantized_multiplier(b, *multipliers).astype(np.int64) + zero_point, *limits
        )
        for b in bounds
    ]
    constant = (ends[0] == ends[1]) & (e >= 0)
    relu = limits[0] >= zero_point or bool(np.all(constant | (bounds[0] >= 0)))
    form = RequantizeForm.SHORT_RELU if relu else RequantizeForm.SHORT
    for common_shift in (*shifts, 0) if common else (0,):
        shift = np.full_like(e, common_shift) if common_shift else e + 1
        left = shift - e + 1
        fits = (
            (m > 0)
            & (e >= 1)
            & (shift <= 30)
            & (left >= (lefts[0] if common_shift else 2))
            & (left <= lefts[1])
            & (relu | (m != 1 << 30))
        )
        varying = fits & ~constant
        left = np.where(varying, left, 2)
        shift = np.where(varying, shift, common_shift or 2)
        addend = (1 << (left - 2)) + (1 << (shift - 1)) + zero_point * (1 << shift)
        scaled = np.minimum(magnitude << left, 1 << 31)
        fits &= scaled < 1 << 31
        fits &= (scaled * m >> 32) + np.abs(addend) + (1 << left) < (1 << 31) - 1
        if bool(np.all(fits | constant)):
            held = (ends[0] << shift) + (1 << (shift - 1))
            columns = (0, bias), (0, m), (held, addend), (shift, shift)
            records = np.stack([np.where(constant, *column) for column in columns], axis=1).astype(np.int32)
            low, high = (np.where(constant, 0, bound) for bound in bounds)
            weights = np.where(constant[:, None], 0, matrix)
            return SmladRequantization(form, common_shift, left, weights, (low, high), records)
    records = np.stack([bias, m, np.full_like(m, zero_point), -e], axis=1).astype(np.int32)
    return SmladRequantization(RequantizeForm.GENERAL, 0, np.zeros_like(e), matrix, bounds, records)
