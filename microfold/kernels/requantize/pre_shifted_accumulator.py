"""Requantisation for kernels whose sums, or weights, are shifted left by a number that is free.

`mul_hi` has the proof for the form that multiplies four times the accumulator. In the same way, for
any s >= 1, E = e + s and e >= 1,

    u = floor(x * 2^(s+1) * m / 2^32) + c,   c = 2^(s-1) + 2^(E-1) + zero_point * 2^E
    y = (u - 2^s * [x < 0]) >> E

Therefore s can compensate the different e of the channels, and E is the same for all: an immediate in the
code. The correction by ``[x < 0]`` can only change results at or below the zero point. It is not needed if
the output is clamped there (ReLU), or if sums are never negative.

Channels whose clamped output is the same for all inputs need neither weights nor multiplier. They have x = 0,
m = 0, c = (y + 1/2) * 2^E.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from microfold.arithmetic import numerics
from microfold.ir.types import Array
from microfold.kernels.requantize.mul_hi import RequantizeForm

# Values of E in the order in which they are tried. 12 fits nearly all layers; fewer values need fewer
# functions.
COMMON_SHIFTS = (12, 10, 16, 8)
# Largest left shift for which weights fit int16. Sums in upper lanes of paired weights already have 8 bits.
LARGEST_LEFT = 8


class SmladRequantization(Struct, frozen=True, eq=False):
    """Requantisation of all channels of a layer.

    Attributes:
        form: SHORT and SHORT_RELU for shifted sums, GENERAL for sums that are not shifted.
        shift: E if it is the same for all channels, else 0.
        left: s + 1, the left shift of the sums in bits, int64 [channels]; 0 in GENERAL.
        matrix: the weights, zero for channels with a constant output.
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
    """Return the shortest form that is provably exact.

    Args:
        matrix: weights [channels, K].
        bias: int64 [channels], zero point folded in.
        bounds: smallest and largest accumulator per channel.
        multipliers: the reference's mantissas and shifts per channel.
        zero_point: zero point of the output.
        limits: smallest and largest output after clamping.
        common: whether to look for a common shift.
        shifts: common shifts, in the order in which they are tried.
        lefts: smallest (at least 2) and largest left shift of sums for a common shift.
    """
    m = multipliers[0].astype(np.int64)
    e = -multipliers[1].astype(np.int64)
    magnitude = np.maximum(np.abs(bounds[0]), np.abs(bounds[1]))
    # Requantisation is monotone unless a left shift overflows: equal ends mean one output for all sums.
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
