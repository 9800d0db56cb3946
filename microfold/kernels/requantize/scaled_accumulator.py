"""Requantisation of sums over values that are scaled by 256.

DSP kernels that keep int8 values in the upper bytes of halfwords accumulate 256 times the sum, which saves
the shift before the high multiplication. `mul_hi` has the proof for s = 1. In the same way, for any s
>= 1 and E = e + s,

    u = floor(x * 2^(s+1) * m / 2^32) + c,   c = 2^(s-1) + [e > 0] * 2^(E-1) + zero_point * 2^E,
    y = (u - 2^s * [x < 0]) >> E

Here s = 7, or more if weights are shifted left so that E is the same for all channels. Sums without bias have
shorter records, see `folded_bias`, which also define the shift of the weights.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.arithmetic import numerics
from microfold.ir.types import Array
from microfold.kernels.requantize import folded_bias

# Scale of the values in bits, and the s that follows from it.
SCALE_BITS = 8
SHIFT = SCALE_BITS - 1
# Accumulators must be below this limit in magnitude, so that 256 times an accumulator fits 32 bits.
PLANE_LIMIT = 1 << (31 - SCALE_BITS)
# E of all channels if it is common; an immediate in the code.
COMMON_SHIFT = 16
# Largest left shift for which weights fit int16.
_LARGEST_LEFT = 8


class PlaneRequantization(Struct, frozen=True, eq=False):
    """Requantisation of all channels of a layer.

    Attributes:
        form: ``short_relu``, ``short``, ``general`` or ``biasless``.
        shift: E if it is the same for all channels, else 0.
        records: int32 [channels, 4]: bias * 256, multiplier, addend, and a shift. With a common E, the shift
            is the left shift of weights (the bias is already shifted). Otherwise it is E, or the reference's
            shift (``general``). For ``biasless``: int32 [channels, 2] as in `BiaslessRequantization`; weights
            are shifted.
    """

    form: str
    shift: int
    records: Array

    @property
    def general(self) -> bool:
        return self.form == "general"

    @property
    def biasless(self) -> bool:
        return self.form == folded_bias.FORM

    @property
    def left(self) -> Array:
        """Left shift of the weights if E is common, in bits, int64 [channels]."""
        if self.biasless:
            return folded_bias.remaining_left_shifts(self.records)
        return self.records[:, 3].astype(np.int64)


def plan_biasless_plane(
    bias: Array,
    bounds: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    zero_point: int,
    limits: tuple[int, int],
) -> PlaneRequantization | None:
    """Return the form of `folded_bias`, with arguments as there."""
    found = folded_bias.plan_biasless(
        bias, bounds, multipliers, zero_point, limits, taken=SCALE_BITS, most=_LARGEST_LEFT
    )
    return None if found is None else PlaneRequantization(folded_bias.FORM, found.shift, found.records)


def plan_plane_requantization(
    bias: Array,
    bounds: tuple[Array, Array],
    mantissas: Array,
    shifts: Array,
    zero_point: int,
    limits: tuple[int, int],
) -> PlaneRequantization | None:
    """Return the shortest form that is provably exact; None if accumulators may be too large.

    Args:
        bias: int64 [channels], zero point folded in.
        bounds: smallest and largest accumulator per channel.
        mantissas, shifts: the reference's multipliers per channel.
        zero_point: zero point of the output.
        limits: smallest and largest output after clamping.
    """
    m = mantissas.astype(np.int64)
    e = -shifts.astype(np.int64)
    magnitude = np.maximum(np.abs(bounds[0]), np.abs(bounds[1]))
    ends = [_reference(b, m, shifts, zero_point, limits) for b in bounds]
    # Channels with a constant output need no accumulator: their multiplier is 0.
    constant = ends[0] == ends[1]
    # Only negative sums need the correction, and only if their outputs are not clamped.
    relu = limits[0] >= zero_point or bool(np.all(constant | (bounds[0] >= 0)))
    if bool(np.any(~constant & (magnitude >= PLANE_LIMIT))):
        return None
    form = "short_relu" if relu else "short"
    least = 0 if relu else 1
    fits = (m > 0) & (e >= least) & (relu | (m != 1 << 30))
    for common in (True, False):
        left = COMMON_SHIFT - e - SHIFT if common else np.zeros_like(e)
        s = SHIFT + left
        exponent = e + s
        ok = fits & (left >= 0) & (left <= 7) & (exponent >= 1) & (exponent <= 24)
        s, left, exponent = (
            np.where(ok, s, SHIFT),
            np.where(ok, left, 0),
            np.where(ok, exponent, COMMON_SHIFT),
        )
        addend = (
            (1 << (s - 1)) + np.where(e > 0, np.int64(1) << (exponent - 1), 0) + zero_point * (1 << exponent)
        )
        scaled = magnitude << (s + 1)
        ok &= (scaled < 1 << 31) & (
            (scaled * np.minimum(m, 1 << 31) >> 32) + np.abs(addend) + (1 << s) < (1 << 31) - 1
        )
        if bool(np.all(ok | constant)):
            held = (ends[0] << COMMON_SHIFT) + (1 << (COMMON_SHIFT - 1))
            last = left if common else exponent
            records = _records(
                np.where(constant, 0, bias << (SCALE_BITS + left)),
                np.where(constant, 0, m),
                np.where(constant, held, addend),
                np.where(constant, 0 if common else COMMON_SHIFT, last),
            )
            return PlaneRequantization(form, COMMON_SHIFT if common else 0, records)
    if bool(np.any(magnitude >= PLANE_LIMIT)):
        return None
    records = _records(bias << SCALE_BITS, m, np.full_like(m, zero_point), shifts.astype(np.int64))
    return PlaneRequantization("general", 0, records)


def _reference(x: Array, m: Array, shifts: Array, zero_point: int, limits: tuple[int, int]) -> Array:
    scaled = numerics.multiply_by_quantized_multiplier(x, m, shifts).astype(np.int64)
    return np.clip(scaled + zero_point, *limits)


def _records(*columns: Array) -> Array:
    return np.stack([np.asarray(c, np.int64).astype(np.int32) for c in columns], axis=1)
