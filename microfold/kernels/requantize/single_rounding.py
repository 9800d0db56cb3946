"""Requantisation for operators whose reference multiplies by a double and rounds once, halves away from zero.

The form SHORT_RELU of `mul_hi` is ``(floor(x*m / 2^30) + c) >> E``. Nested floors merge, so that with
``c = 2^(E-1) + zero_point * 2^E`` it equals ``floor(x * m * 2^-(30+E) + 1/2) + zero_point``. It also rounds
once, but halves up. A mantissa slightly above the exact one moves products away from zero, and all ties with
them.
"""

from __future__ import annotations

import math

import numpy as np

from microfold.arithmetic import step_function
from microfold.ir.types import Array, DType
from microfold.kernels.requantize.mul_hi import Requantization, RequantizeForm

_TRIED = 32  # mantissas that are tried on each side of the nearest one


def plan_single_rounding(
    bias: Array, bounds: tuple[int, int], reference: step_function.Function, scale: float, zero_point: int
) -> Requantization | None:
    """Return records of the form that are proved to equal the reference; None if no candidate does.

    Args:
        bias: int64 [channels], zero point folded in.
        bounds: smallest and largest sum of all channels.
        reference: function from sums to int8 results; monotone.
        scale: multiplier of the reference.
        zero_point: zero point of the output.
    """
    fraction, exponent = math.frexp(scale)
    shift = 1 - exponent
    if not 1 <= shift <= 22 or max(-bounds[0], bounds[1]) >= 1 << 29:
        return None
    addend = (1 << (shift - 1)) + zero_point * (1 << shift)
    low, high = (np.array([bound], np.int64) for bound in bounds)
    for step in sorted(range(-_TRIED, _TRIED + 1), key=abs):
        mantissa = round(fraction * (1 << 31)) + step

        def form(sums: Array, mantissa: int = mantissa) -> Array:
            results = (((sums * mantissa) >> 30) + addend) >> shift
            return np.clip(results, *DType.INT8.range)

        fits = 0 < mantissa < 1 << 31 and ((max(-bounds[0], bounds[1]) * mantissa) >> 30) < (1 << 31) - abs(
            addend
        )
        if fits and step_function.first_difference(form, reference, (form, reference), low, high) is None:
            constants = np.tile(np.array([mantissa, addend, shift], np.int64), (bias.size, 1))
            records = np.concatenate([bias[:, None], constants], axis=1)
            return Requantization(RequantizeForm.SHORT_RELU, records.astype(np.int32))
    return None
