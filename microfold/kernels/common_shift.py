"""Requantisation with one final shift for all channels, an immediate in the code.

`requantize` has the proof for the form that multiplies four times the accumulator. In the same way, for any s >= 1,
E = e + s and e >= 1,

    u = floor(x * 2^(s+1) * m / 2^32) + c,   c = 2^(s-1) + 2^(E-1) + zero_point * 2^E,   y = (u - 2^s * [x < 0]) >> E

The channels' different e are made up for by s, in a shift of the sum that the kernels do anyway (or in the weights).
The correction by ``[x < 0]`` can only change results at or below the zero point: not needed where the output is
clamped there (ReLU).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from microfold import numerics
from microfold.ir.types import Array

# Tried in this order: 12 fits nearly all layers, and few values mean few functions.
SHIFTS = (12, 16, 8)
MAX_LEFT = 8


@dataclass(frozen=True, eq=False)
class CommonShift:
    """How to requantise.

    Attributes:
        shift: E.
        relu: the correction of negative sums is left out.
        left: int64 [channels], s + 1: how far sums are shifted to the left, 2 to 8.
        records: int32 [channels, 4]: bias, multiplier, addend, 0.
    """

    shift: int
    relu: bool
    left: Array
    records: Array


def plan_common_shift(
    bias: Array, bounds: tuple[Array, Array], mantissas: Array, shifts: Array, zero_point: int, low: int
) -> CommonShift | None:
    """The first common shift that is provably exact, or None.

    Args:
        bias: int64 [channels], zero point folded in.
        bounds: smallest and largest accumulator per channel.
        mantissas, shifts: the reference's multipliers per channel.
        zero_point: of the output.
        low: the output's smallest value after clamping.
    """
    m = mantissas.astype(np.int64)
    e = -shifts.astype(np.int64)
    magnitude = np.maximum(np.abs(bounds[0]), np.abs(bounds[1]))
    # Requantisation is monotonic: equal at both bounds means equal everywhere, without any multiplication.
    ends = [
        numerics.multiply_by_quantized_multiplier(b, mantissas, shifts).astype(np.int64) + zero_point for b in bounds
    ]
    constant = ends[0] == ends[1]
    relu = low >= zero_point
    for shift in SHIFTS:
        left = shift - e + 1
        fits = (m > 0) & (e >= 1) & (left >= 2) & (left <= MAX_LEFT) & (relu | (m != 1 << 30))
        left = np.where(fits, left, 2)
        addend = (1 << (left - 2)) + (1 << (shift - 1)) + zero_point * (1 << shift)
        scaled = magnitude << left
        fits &= scaled < 1 << 31
        fits &= (np.minimum(scaled, 1 << 31) * m >> 32) + np.abs(addend) + (1 << left) < (1 << 31) - 1
        if bool(np.all(fits | constant)):
            held = (ends[0] << shift) + (1 << (shift - 1))
            columns = bias, np.where(constant, 0, m), np.where(constant, held, addend), np.zeros_like(m)
            records = np.stack(columns, axis=1).astype(np.int32)
            return CommonShift(shift, relu, left, records)
    return None
