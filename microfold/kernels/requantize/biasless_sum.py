"""Requantisation of sums without bias: two words for a channel, and one shift for nearly all layers.

The output, clamped to its limits, is a staircase over the sums, see `multiply_low`. For sums S of products
alone, a multiplier M, an addend C, and shifts L and E,

    y(S) = (floor(S * 2^L * M / 2^32) + C) >> E

is the reference's output if for each value j that it must have reached at S = a, and not yet at S = b,

    C >= j * 2^E - floor(a * 2^L * M / 2^32)        C <= j * 2^E - 1 - floor(b * 2^L * M / 2^32)

An integer C between all of these bounds is a proof, since neither floor ever falls as S grows; nothing is
assumed about M. Biases, zero points and rounding are in C. A large E makes the first floor harmless: its
error is a part of 2^E of the output's unit. `multiply_high` and `shifted_sum` have their E from floors that
coincide with the reference's; here it is free, and the same for channels with other multipliers.

L, or what is left of it to do, is in the lowest bits of M: they count as part of the multiplier in the
bounds above, so that code need not remove them.

Whether real slopes have these steps, and which: c - t * S must separate the points (a, j) from (b, j), so
that t lies between the largest (j - j') / (a - b') and the smallest one with a < b'. Newton's method for such
fractions, as in W. Dinkelbach, "On nonlinear fractional programming" (Management Science 13, 1967), finds
both. Channels that round halves of negative sums away from zero often have no slope.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.requantize.multiply_low import Staircase, find_steps
from microfold.support.frozen import frozen
from microfold.support.memo import remembered

# Tried in this order: 17 fits nearly all layers, and few values mean few functions.
SHIFTS = (17, 18, 16, 15, 19, 20)
# Bits of the multiplier that hold what is left to shift.
FIELD_BITS = 4
# Among the names of `RequantizeForm`.
FORM = "biasless"
# Multipliers and left shifts that are tried for a channel: the multiplier in the middle, which nearly always
# fits, and those around it, a few at a time.
_CANDIDATES, _LEFTS, _TOGETHER = 48, 4, 8
_AROUND = (np.arange(_CANDIDATES) + 1) // 2 * np.where(np.arange(_CANDIDATES) % 2, -1, 1)
_OFFSETS = np.split(_AROUND[:, np.newaxis], [1, *range(_TOGETHER, _CANDIDATES, _TOGETHER)])
# Of Newton's method; and gaps between the steps of a line that are none, in units of the output.
_ITERATIONS, _TOLERANCE = 40, 1e-9


@frozen(eq=False)
class BiaslessRequantization:
    """How to requantise.

    Attributes:
        shift: E of all channels.
        records: int32 [channels, 2]: M, whose lowest four bits say how far sums are still to be shifted to
            the left; C. M is 0 where the output is the same for all sums.
    """

    shift: int
    records: Array


def remaining_shifts(records: Array) -> Array:
    """How far sums are still to be shifted to the left, int64 [channels]."""
    return records[:, 0].astype(np.int64) & ((1 << FIELD_BITS) - 1)


class _Steps(NamedTuple):
    """Of channels whose output varies, with sums that have no bias: see `Staircase`."""

    at: Array
    before: Array
    needs_at: Array
    needs_before: Array
    values: Array
    low: Array
    high: Array

    def of(self, channels: Array) -> _Steps:
        """Of some channels, a mask or their indices."""
        return _Steps(
            self.at[:, channels],
            self.before[:, channels],
            self.needs_at[:, channels],
            self.needs_before[:, channels],
            self.values,
            self.low[channels],
            self.high[channels],
        )


class _Lines(NamedTuple):
    """What records are found from, of all channels.

    Attributes:
        first: outputs of the smallest sums.
        varying: which channels have more than one output.
        steps: of these.
        slopes: between which lines have the steps, of these, too.
    """

    first: Array
    varying: Array
    steps: _Steps
    slopes: tuple[Array, Array]


# Bands of rows of a layer have the same sums, and so have kernels that pack weights alike.
@remembered(64)
def plan_biasless(
    bias: Array,
    bounds: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    zero_point: int,
    limits: tuple[int, int],
    taken: Array | int = 0,
    most: int = (1 << FIELD_BITS) - 1,
    order: Array | None = None,
) -> BiaslessRequantization | None:
    """Records of all channels, with the same E; None if a channel has none.

    Args:
        bias: int64 [channels], zero point folded in.
        bounds: smallest and largest accumulator per channel, bias included.
        multipliers: the reference's mantissas and shifts per channel.
        zero_point: of the output.
        limits: the output's bounds after clamping.
        taken: how far sums come out shifted to the left, for each record.
        most: how far they may be shifted besides.
        order: the channels of the records; default: all in turn.
    """
    lines = _find_lines(bias, bounds, multipliers, zero_point, limits)
    if lines is None:
        return None
    if order is None:
        order = np.arange(len(bias))
    taken = np.broadcast_to(np.asarray(taken, np.int64), order.shape)
    place = np.cumsum(lines.varying) - 1  # of a channel among those that vary
    varying = np.flatnonzero(lines.varying[order])
    of = place[order[varying]]
    steps, slopes = lines.steps.of(of), (lines.slopes[0][of], lines.slopes[1][of])
    for shift in SHIFTS:
        found = _fit(steps, slopes, shift, taken[varying], most)
        if found is not None:
            records = np.zeros((len(order), 2), np.int64)
            records[:, 1] = (lines.first[order] << shift) + (1 << (shift - 1))
            records[varying] = found
            return BiaslessRequantization(shift, records.astype(np.int32))
    return None


# A kernel asks again at once for other channels together. Steps are large: no more are kept.
@remembered(2)
def _find_lines(
    bias: Array,
    bounds: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    zero_point: int,
    limits: tuple[int, int],
) -> _Lines | None:
    """None if the output of a channel is no staircase, or no line has its steps."""
    stairs = find_steps(bounds, multipliers, zero_point, limits)
    if stairs is None:
        return None
    varying = stairs.first != stairs.last
    steps = _without_bias(stairs, bias).of(varying)
    reference = np.ldexp(multipliers[0].astype(np.float64), multipliers[1].astype(np.int64) - 31)
    slopes = _find_slopes(steps, np.broadcast_to(reference, bias.shape)[varying])
    return None if slopes is None else _Lines(stairs.first, varying, steps, slopes)


def _without_bias(stairs: Staircase, bias: Array) -> _Steps:
    at, before, low, high = (part - bias for part in (stairs.at, stairs.before, stairs.low, stairs.high))
    return _Steps(at, before, stairs.needs_at, stairs.needs_before, stairs.values, low, high)


def _find_slopes(steps: _Steps, reference: Array) -> tuple[Array, Array] | None:
    """Between which slopes lines have the steps, up to twice the reference's; None if a channel has none."""
    if not reference.size:
        return reference, reference
    low = _first_slope(steps, np.zeros_like(reference), 1)
    high = _first_slope(steps, np.minimum(2 * reference, 1.0), -1)
    if low is None or high is None or not bool((low < high).all()):
        return None
    return low, high


def _first_slope(steps: _Steps, slope: Array, direction: int) -> Array | None:
    """The first slope, from one on upwards or downwards, with which lines have the steps."""
    # [channels, values]: the values that must be reached, and must not yet.
    reached = np.where(steps.needs_at, steps.values, -np.inf).T.copy()
    missed = np.where(steps.needs_before, steps.values, np.inf).T.copy()
    at, before = (sums.T.astype(np.float64, order="C") for sums in (steps.at, steps.before))
    channels = np.arange(len(slope))
    for _ in range(_ITERATIONS):
        # The values that ask for the largest addend, and for the smallest one.
        largest = (reached - slope[:, np.newaxis] * at).argmax(axis=1)
        smallest = (missed - slope[:, np.newaxis] * before).argmin(axis=1)
        rise = (steps.values[largest] - steps.values[smallest])[:, 0]
        run = steps.at[largest, channels] - steps.before[smallest, channels]
        apart = rise - slope * run > _TOLERANCE
        if bool((apart & (run * direction <= 0)).any()):
            return None
        if not bool(apart.any()):
            break
        slope = np.where(apart, rise / np.where(apart, run, 1), slope)
    return slope


def _fit(steps: _Steps, slopes: tuple[Array, Array], shift: int, taken: Array, most: int) -> Array | None:
    """M and C of each channel, int64 [channels, 2]; None if a channel has none that is tried."""
    middle, width = (slopes[0] + slopes[1]) / 2, slopes[1] - slopes[0]
    extent = np.maximum(np.abs(steps.low), np.abs(steps.high))
    # The smallest L keeps most bits of M; sums that are shifted fit 32 bits.
    first = np.maximum(np.frexp(middle)[1] + shift + 1, taken)
    last = np.minimum(31 - np.frexp(extent.astype(np.float64))[1], taken + most)
    found = np.zeros((len(middle), 2), np.int64)
    pending = np.arange(len(middle))
    for more in range(_LEFTS):
        left = first + more
        scale = np.exp2(32.0 + shift - left)
        nearest = (middle * scale).astype(np.int64) >> FIELD_BITS
        pitch = np.maximum((width * scale / _CANDIDATES).astype(np.int64) >> FIELD_BITS, 1)
        for offsets in _OFFSETS:
            if not pending.size:
                return found
            m = ((nearest + offsets * pitch) << FIELD_BITS) + left - taken
            m = m[:, pending]
            c, fits = _addends(steps.of(pending), left[pending], m, shift)
            fits &= (left <= last)[pending] & (m > 0) & (m < 1 << 31)
            best, fitting = fits.argmax(axis=0), np.flatnonzero(fits.any(axis=0))
            best = best[fitting]
            found[pending[fitting]] = np.stack([m[best, fitting], c[best, fitting]], axis=1)
            pending = np.delete(pending, fitting)
    return None if pending.size else found


def _addends(steps: _Steps, left: Array, m: Array, shift: int) -> tuple[Array, Array]:
    """The integers in the middle of what C may be, and whether there is one that fits.

    Args:
        left: int64 [channels].
        m: int64 [candidates, channels], as both results.
    """
    m = m[:, np.newaxis]

    def product(sums: Array) -> Array:
        return ((sums << left) * m) >> 32

    limits = np.iinfo(np.int64)
    targets = steps.values << shift
    smallest = np.where(steps.needs_at, targets - product(steps.at), limits.min).max(axis=1)
    largest = np.where(steps.needs_before, targets - 1 - product(steps.before), limits.max).min(axis=1)
    c = (smallest + largest) >> 1
    fits = (smallest <= largest) & (np.abs(c) < 1 << 31)
    for end in (steps.low, steps.high):
        fits &= np.abs(product(end)[:, 0] + c) < 1 << 31
    return c, fits
