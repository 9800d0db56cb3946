"""Requantisation for cores that multiply only to the lower 32 bits.

The output, clamped to its limits, is a monotone step function of the accumulator: y(x) >= j if x >= a[j]. A
line

    y(x) = floor((x * m + C) / 2^S)

has the same steps in [low, high] if for every j, with a[j] clamped to these bounds,

    a[j] * m + C >= j * 2^S   and   (a[j] - 1) * m + C < j * 2^S

These inequalities are an interval of C for each m. Therefore m can be much shorter than the reference's
multiplier, and can be split into pieces of p bits whose products with x fit 32 bits. Floors nest: with C = c
* 2^p,

    floor((x * m + C) / 2^S) = floor((x * (m >> p) + floor(x * (m mod 2^p) / 2^p) + c) / 2^(S - p))

and in the same way for three pieces. The reference rounds twice, and rounds halves of negative numbers down,
so that its steps may differ from a line's. With m of n bits, SIGNED forms subtract 2^n from the sum if x < 0.
"""

from __future__ import annotations

import enum

import numpy as np
from msgspec import Struct

from microfold.arithmetic import numerics
from microfold.arithmetic.step_function import breakpoints
from microfold.ir.types import Array
from microfold.kernels.call import Parameter
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range, output_table


class NarrowForm(str, enum.Enum):
    """Instruction sequence, as the suffix of the helper's C name: bits of m, in pieces of 12 or 10."""

    BITS_24 = "narrow_24"
    BITS_24_SIGNED = "narrow_24_signed"
    BITS_30 = "narrow_30"
    BITS_30_SIGNED = "narrow_30_signed"

    @property
    def bits(self) -> int:
        return 24 if self in (NarrowForm.BITS_24, NarrowForm.BITS_24_SIGNED) else 30

    @property
    def piece(self) -> int:
        return 12 if self.bits == 24 else 10

    @property
    def signed(self) -> bool:
        return self in (NarrowForm.BITS_24_SIGNED, NarrowForm.BITS_30_SIGNED)

    @property
    def cut(self) -> int:
        """Number of bits by which the sum is shifted right before c is added."""
        return self.bits - self.piece


# Number of multipliers that are tried on each side of the nearest one.
NEIGHBOURS = 6
_CONSTANT_SHIFT = 20


class StepFunction(Struct, frozen=True, eq=False):
    """Steps of the reference's clamped output, which is a monotone step function.

    Attributes:
        low, high: smallest and largest accumulator, int64 [channels].
        first, last: outputs of the smallest and the largest accumulator.
        at, before: accumulators that must reach a value, and that must not, int64 [values, channels].
        needs_at, needs_before: whether these accumulators exist.
        values: output values, int64 [values, 1].
    """

    low: Array
    high: Array
    first: Array
    last: Array
    at: Array
    before: Array
    needs_at: Array
    needs_before: Array
    values: Array

    def constants(self, m: Array, total: Array, correction: int = 0) -> tuple[Array, Array]:
        """Return the bounds of C per channel for which floor((x * m + C) / 2^total) has the same steps.

        Args:
            correction: amount that is subtracted from the sum if x < 0.
        """
        targets = self.values << total
        smallest = targets - self.at * m + correction * (self.at < 0)
        largest = targets - 1 - self.before * m + correction * (self.before < 0)
        limits = np.iinfo(np.int64)
        return (
            np.where(self.needs_at, smallest, limits.min).max(axis=0, initial=limits.min),
            np.where(self.needs_before, largest, limits.max).min(axis=0, initial=limits.max),
        )


def find_breakpoints(
    bounds: tuple[Array, Array], multipliers: tuple[Array, Array], zero_point: int, limits: tuple[int, int]
) -> StepFunction | None:
    """Find the reference's steps; None if its output might be no monotone step function.

    Args:
        bounds: smallest and largest accumulator per channel.
        multipliers: the reference's mantissas and shifts per channel.
        zero_point: zero point of the output.
        limits: limits to which the output is clamped afterwards.
    """
    low, high = (np.asarray(bound, np.int64) for bound in bounds)
    mantissas = np.broadcast_to(np.asarray(multipliers[0], np.int64), low.shape)
    shifts = np.broadcast_to(np.asarray(multipliers[1], np.int64), low.shape)

    def stairs(x: Array) -> Array:
        scaled = numerics.multiply_by_quantized_multiplier(x, mantissas, shifts).astype(np.int64)
        return np.clip(scaled + zero_point, *limits)

    def expected(values: Array) -> Array:
        # The real accumulator half-way between two outputs.
        scale = np.ldexp(np.maximum(mantissas, 1).astype(np.float64), shifts - 31)
        return np.clip((values - zero_point - 0.5) / scale, low, high).astype(np.int64)

    # Left shifts might overflow in the reference.
    if (shifts > 0).any() or max(np.abs(low).max(), np.abs(high).max()) >= 1 << 30:
        return None
    first, last = stairs(low), stairs(high)
    # All values that a channel steps to, and its first and last value unless they are clamped.
    below, above = int(first.min() > limits[0]), int(last.max() < limits[1])
    lowest, highest = int(first.min()) + 1 - below, int(last.max()) + above
    values = np.arange(lowest, highest + 1, dtype=np.int64)[:, np.newaxis]
    reached = np.pad(breakpoints(stairs, low, high, expected), ((below, above), (0, 0)))
    # A step within the bounds has an accumulator on each side. Other values only have a bound.
    within = (values > first) & (values <= last)
    at, before = np.where(within, reached, low), np.where(within, reached - 1, high)
    return StepFunction(low, high, first, last, at, before, values <= last, values > first, values)


def plan_narrow(
    bias: Array,
    bounds: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    zero_point: int,
    limits: tuple[int, int],
) -> tuple[NarrowForm, Array] | None:
    """Return the shortest form that equals the reference for every accumulator; None if none does.

    Args:
        bias: int64 [channels], first column of the records.
        bounds, multipliers, zero_point, limits: see `find_breakpoints`.

    Returns:
        The form, and int32 [channels, 4]: bias, m, c, shift.
    """
    stairs = find_breakpoints(bounds, multipliers, zero_point, limits)
    if stairs is None:
        return None
    mantissas = np.broadcast_to(np.asarray(multipliers[0], np.int64), stairs.low.shape)
    shifts = np.broadcast_to(np.asarray(multipliers[1], np.int64), stairs.low.shape)
    for form in NarrowForm:
        columns = _fit(form, stairs, (mantissas, shifts))
        if columns is not None:
            return form, np.stack([bias, *columns], axis=1).astype(np.int32)
    return None


def _fit(
    form: NarrowForm, stairs: StepFunction, multipliers: tuple[Array, Array]
) -> tuple[Array, Array, Array] | None:
    """Return m, c and shift of each channel; None if some channel has none."""
    magnitude = np.maximum(np.abs(stairs.low), np.abs(stairs.high))
    # Products of pieces fit 32 bits, including the carry from the lower piece.
    if magnitude.max() > (1 << (31 - form.piece)) - (1 << 12):
        return None
    total = form.bits - multipliers[1]
    constant = stairs.first == stairs.last
    fitting = constant.copy()
    m = np.zeros_like(stairs.low)
    c = np.where(constant, (stairs.first << _CONSTANT_SHIFT) + (1 << (_CONSTANT_SHIFT - 1)), 0)
    shift = np.where(constant, _CONSTANT_SHIFT, total - form.cut)
    if ((shift < 1) | (shift > 31)).any():
        return None
    if fitting.all():
        return m, c, shift
    nearest = (multipliers[0] + (1 << (30 - form.bits))) >> (31 - form.bits)
    correction = int(form.signed) << form.bits
    for offset in sorted(range(-NEIGHBOURS, NEIGHBOURS + 1), key=abs):
        candidate = nearest + offset
        smallest, largest = stairs.constants(candidate, np.minimum(total, 50), correction)
        # The middle of the interval, rounded up to a value that c can represent.
        addend = -(-(smallest // 2 + largest // 2) >> form.cut)
        addend = np.where(addend << form.cut > largest, -(-smallest >> form.cut), addend)
        fits = (smallest <= addend << form.cut) & (addend << form.cut <= largest)
        fits &= (candidate > 0) & (candidate < 1 << form.bits) & (total <= 50)
        fits &= (magnitude * candidate >> form.cut) + np.abs(addend) + (1 << 13) < 1 << 31
        new = fits & ~fitting
        m, c, fitting = np.where(new, candidate, m), np.where(new, addend, c), fitting | fits
        if fitting.all():
            return m, c, shift
    return None


def channel_records(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array], *, narrow: bool
) -> tuple[str, Array, bool, dict[str, Parameter]]:
    """Return the requantisation of a product sum: form, records, whether the output is clamped, and limits.

    Args:
        matrix: the weights as [channels, K], any zero point subtracted.
        multipliers: the reference's mantissas and shifts per channel.
        narrow: whether the core has no 64-bit product.
    """
    out = output_table.sum_type(layer.node)
    assert out.quant is not None
    if narrow:
        bias, bounds = product_sum.bias_and_bounds(layer, matrix)
        limits = output_range.integer_bounds(layer.node)
        found = plan_narrow(bias, bounds, multipliers, out.quant.zero_point, limits)
        if found is not None:
            clamp, fields = output_range.clamping(layer.node)
            return found[0].value, found[1], clamp, dict(fields)
    plan, _ = product_sum.output_records(layer, matrix, multipliers)
    clamp, fields = output_range.proved_clamping(layer)
    return plan.form.value, plan.records, clamp, dict(fields)
