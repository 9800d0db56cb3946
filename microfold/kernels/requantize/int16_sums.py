"""Requantisation of product sums to int16, in one multiplication where that is exact.

Sums of 64 bits (see `accumulate.has_wide_sums`) are scaled by ``m * 2^-s``, m of 16 bits, and rounded once
(`numerics.multiply_int64_by_quantized_multiplier`). With M = 2^16 * m and s > 16,

    (x*m + 2^(s-1)) >> s = (floor(x*M / 2^32) + 2^(s-17)) >> (s-16)

because ``2^(s-1) * 2^16`` is a multiple of 2^32: the upper half of a product of 32 bits, an addend, a shift.
That needs sums that are proved to fit 32 bits.

Sums of 32 bits wrap round, and are requantised as those of int8 are: see `multiply_high`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.analysis.product_sum import has_wide_sums
from microfold.ir.types import Array, DType
from microfold.kernels.call import Parameter, SpecValue
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.multiply_high import RequantizeForm
from microfold.support.frozen import frozen

# Bits by which M is larger than m.
SHIFT = 16
# Neither the upper half of the product nor the addend exceeds 2^30: their sum has 32 bits.
SMALLEST_SHIFT, LARGEST_SHIFT = 17, 47
# No sum of so many products of int16 and int8 leaves 32 bits. A multiple of all vectors and groups.
CHUNK = 504


@frozen(eq=False)
class Int16Requantization:
    """Constants and instruction sequence that make int16 of sums.

    Attributes:
        form: ends the helper's C name. ``once``: `records` are (bias, M, 2^(s-17), s-16); ``wide``:
            `product_sum.wide_records`; others: `multiply_high.RequantizeForm`.
        records: int32 [channels, 4].
        long: code has to sum up in 64 bits; sums of up to `CHUNK` products never need them.
    """

    form: str
    records: Array
    long: bool

    @property
    def cost(self) -> str:
        """The form whose measured cost stands for this one's."""
        steps = ("wide", RequantizeForm.GENERAL.value, RequantizeForm.WRAPPED.value)
        return "wide" if self.form in steps else "once"

    @property
    def choice(self) -> tuple[tuple[str, SpecValue], ...]:
        """Compile-time choices of portable templates."""
        return ("accumulator", "int64_t" if self.long else "int32_t"), ("requantize", self.form)


def plan_int16_requantization(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> Int16Requantization | None:
    """Return the shortest form that is exact; None if a bias or a multiplier is too large.

    Args:
        matrix: the weights as [channels, K].
        multipliers: the reference's mantissas and shifts per channel.
    """
    plan = plan_portable(layer, matrix, multipliers)
    if plan is None or plan.form != "wide" or plan.long:
        return plan
    shift = plan.records[:, 3]
    if int(shift.min()) < SMALLEST_SHIFT or int(shift.max()) > LARGEST_SHIFT:
        return plan
    return Int16Requantization("once", once_records(plan.records), False)


def plan_portable(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> Int16Requantization | None:
    """Return the same without ``once``, whose helper only cores with DSP instructions have."""
    if has_wide_sums(layer.node):
        return _plan_wide(layer, matrix, multipliers)
    requantization, _ = product_sum.output_records(layer, matrix, multipliers)
    form = requantization.form
    return Int16Requantization(form.value, requantization.records, form is RequantizeForm.WRAPPED)


def _plan_wide(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> Int16Requantization | None:
    planned = product_sum.wide_records(layer, matrix, multipliers)
    return None if planned is None else Int16Requantization("wide", planned[0], planned[1] != "int32_t")


def once_records(records: Array) -> Array:
    """Convert records of ``wide``, int32 [channels, 4], to records of ``once``.

    Every shift must be in the range that ``once`` has.
    """
    bias, reduced, _, shift = records.astype(np.int64).T
    addend = np.int64(1) << (shift - SHIFT - 1)
    return np.stack([bias, reduced << SHIFT, addend, shift - SHIFT], axis=1).astype(np.int32)


def int16_clamping(layer: LayerContext) -> tuple[str, Mapping[str, Parameter]]:
    """How int16 outputs are clamped, and the layer fields for it.

    Returns:
        ``none``, ``relu`` (to 0 and above), ``limited`` (to 0 and a maximum), or ``general``.
    """
    (low, high), (lowest, highest) = output_range.output_limits(layer), DType.INT16.range
    if (low, high) == (lowest, highest):
        return "none", {}
    if low == 0:
        return ("relu", {}) if high == highest else ("limited", {"output_maximum": high})
    return "general", {"output_minimum": low, "output_maximum": high}
