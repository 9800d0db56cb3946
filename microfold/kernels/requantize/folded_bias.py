"""Exact requantisation with the bias folded into the addend: two words for each channel.

The kernel accumulates products only. Bias, zero points and rounding constant are all in the addend C. With an
int32 sum of products S, a multiplier M, a left shift L and a right shift E, the kernel computes

    y(S) = (floor(S * 2^L * M / 2^32) + C) >> E                                                        (1)

E is the same for all channels, and therefore an immediate in the code.

Proof. The reference's output, clamped to its limits, is a monotone step function of S (see `mul_lo`).
For each output j, let a be the smallest sum at which it must have reached j, and b the largest sum at which
it must not. (1) equals the reference for all sums if, for every j,

    C >= j * 2^E - floor(a * 2^L * M / 2^32)        C <= j * 2^E - 1 - floor(b * 2^L * M / 2^32)       (2)

because (1) is monotone in S for every M >= 0. Nothing else is assumed about M. A large E helps: the error of
the inner floor is below 2^-E units of the output. `mul_hi` and `pre_shifted_accumulator` derive E from the
reference's shifts; here it is free, and can be the same for channels with different multipliers.

Encoding. The lowest 4 bits of M hold the part of L that the kernel still has to apply. They count as a part
of M in (1) and (2), so that the code need not remove them.

Search. A line c + t * S has the steps if the slope t is between the largest (j - j') / (a - b') with a > b',
and the smallest with a < b', for two steps j and j'. Newton's method for fractions finds both ends: W.
Dinkelbach, "On nonlinear fractional programming", Management Science 13, 1967. There is often no line if the
reference rounds halves of negative sums away from zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array
from microfold.kernels.requantize.mul_lo import StepFunction, find_breakpoints
from microfold.support.memo import remembered

# Values of E in the order in which they are tried. 17 fits nearly all layers; fewer values need fewer
# functions.
SHIFTS = (17, 18, 16, 15, 19, 20)
# Lowest bits of M that encode the remaining left shift.
FIELD_BITS = 4
# Name of this form, in addition to the names of `RequantizeForm`.
FORM = "biasless"
# Search space of a channel: number of values of M for each L, of values of L, and of values of M that are
# tested at once. The value in the middle, which nearly always fits, is tested alone.
_CANDIDATES, _LEFTS, _TOGETHER = 48, 4, 8
_AROUND = (np.arange(_CANDIDATES) + 1) // 2 * np.where(np.arange(_CANDIDATES) % 2, -1, 1)
_OFFSETS = np.split(_AROUND[:, np.newaxis], [1, *range(_TOGETHER, _CANDIDATES, _TOGETHER)])
# Newton's method: maximum number of iterations, and largest gap that counts as rounding error, in units of
# the output.
_ITERATIONS, _TOLERANCE = 40, 1e-9


class BiaslessRequantization(Struct, frozen=True, eq=False):
    """Requantisation of all channels of a layer.

    Attributes:
        shift: E, in bits, the same for all channels.
        records: M and C of each channel, int32 [channels, 2]. The lowest 4 bits of M are the left shift that
            the kernel still has to apply to the sum. M is 0 if the output is the same for all sums.
    """

    shift: int
    records: Array


def remaining_left_shifts(records: Array) -> Array:
    """Return the left shift that the kernel still has to apply to sums, in bits, int64 [channels]."""
    return records[:, 0].astype(np.int64) & ((1 << FIELD_BITS) - 1)


class _Steps(NamedTuple):
    """Steps of the channels whose output varies, as in `StepFunction`, but over sums without bias."""

    at: Array
    before: Array
    needs_at: Array
    needs_before: Array
    values: Array
    low: Array
    high: Array

    def of(self, channels: Array) -> _Steps:
        """Return the steps of some channels, given as a mask or as indices."""
        return _Steps(
            self.at[:, channels],
            self.before[:, channels],
            self.needs_at[:, channels],
            self.needs_before[:, channels],
            self.values,
            self.low[channels],
            self.high[channels],
        )


class _SearchInput(NamedTuple):
    """Input of the search for records, which does not depend on E.

    Attributes:
        first: output for the smallest sum, for all channels.
        varying: whether a channel has more than one output, for all channels.
        steps: steps of the varying channels.
        slopes: smallest and largest slope of a line with these steps, for the varying channels.
    """

    first: Array
    varying: Array
    steps: _Steps
    slopes: tuple[Array, Array]


# Cached: bands of rows of a layer have the same sums, and so have kernels that pack weights in the same way.
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
    """Find M and C for all channels, with one common E; None if some channel has no exact form.

    Args:
        bias: bias with the input's zero point folded in, int64 [channels].
        bounds: smallest and largest accumulator per channel, bias included.
        multipliers: the reference's mantissas and shifts per channel.
        zero_point: zero point of the output.
        limits: smallest and largest output after clamping.
        taken: left shift that the sums of each record already have, in bits.
        most: largest additional left shift, in bits.
        order: channel of each record; default: every channel once, in order.
    """
    lines = _prepare_search(bias, bounds, multipliers, zero_point, limits)
    if lines is None:
        return None
    if order is None:
        order = np.arange(len(bias))
    taken = np.broadcast_to(np.asarray(taken, np.int64), order.shape)
    place = np.cumsum(lines.varying) - 1  # index of a channel among the varying ones
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


# Cached: a kernel asks again at once for other block sizes. Only two results are kept, because steps are
# large.
@remembered(2)
def _prepare_search(
    bias: Array,
    bounds: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    zero_point: int,
    limits: tuple[int, int],
) -> _SearchInput | None:
    """Find the steps and their slopes; None if an output has no monotone steps, or no line has its steps."""
    stairs = find_breakpoints(bounds, multipliers, zero_point, limits)
    if stairs is None:
        return None
    varying = stairs.first != stairs.last
    steps = _without_bias(stairs, bias).of(varying)
    reference = np.ldexp(multipliers[0].astype(np.float64), multipliers[1].astype(np.int64) - 31)
    slopes = _slope_interval(steps, np.broadcast_to(reference, bias.shape)[varying])
    return None if slopes is None else _SearchInput(stairs.first, varying, steps, slopes)


def _without_bias(stairs: StepFunction, bias: Array) -> _Steps:
    at, before, low, high = (part - bias for part in (stairs.at, stairs.before, stairs.low, stairs.high))
    return _Steps(at, before, stairs.needs_at, stairs.needs_before, stairs.values, low, high)


def _slope_interval(steps: _Steps, reference: Array) -> tuple[Array, Array] | None:
    """Return the smallest and largest slope of lines with the steps, up to twice the reference's, or None."""
    if not reference.size:
        return reference, reference
    low = _first_slope(steps, np.zeros_like(reference), 1)
    high = _first_slope(steps, np.minimum(2 * reference, 1.0), -1)
    if low is None or high is None or not bool((low < high).all()):
        return None
    return low, high


def _first_slope(steps: _Steps, slope: Array, direction: int) -> Array | None:
    """Return the first slope of a line with the steps, from `slope` on upwards (1) or downwards (-1)."""
    # [channels, values]: values that must be reached at `at`, and values that must not be reached at
    # `before`.
    reached = np.where(steps.needs_at, steps.values, -np.inf).T.copy()
    missed = np.where(steps.needs_before, steps.values, np.inf).T.copy()
    at, before = (sums.T.astype(np.float64, order="C") for sums in (steps.at, steps.before))
    channels = np.arange(len(slope))
    for _ in range(_ITERATIONS):
        # The steps with the largest lower bound and the smallest upper bound of the addend.
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
    """Return M and C of each channel, int64 [channels, 2]; None if no candidate fits for some channel."""
    middle, width = (slopes[0] + slopes[1]) / 2, slopes[1] - slopes[0]
    extent = np.maximum(np.abs(steps.low), np.abs(steps.high))
    # The smallest L keeps most bits of M. The largest L keeps shifted sums in 32 bits.
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
    """Return the integer in the middle of the interval (2) of C, and whether it proves the form.

    Args:
        left: L, int64 [channels].
        m: candidates of M, int64 [candidates, channels]; both results have this shape.
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
