"""Requantisation of product sums to int16, by one multiplication if that is exact.

64-bit sums (see `accumulate.has_wide_sums`) are scaled by ``m * 2^-s``, m of 16 bits, and rounded once
(`numerics.multiply_int64_by_quantized_multiplier`). With M = 2^16 * m and s > 16,

    (x*m + 2^(s-1)) >> s = (floor(x*M / 2^32) + 2^(s-17)) >> (s-16)

because ``2^(s-1) * 2^16`` is a multiple of 2^32. The code needs the upper half of a product of 32-bit
factors, an addend and a shift. Sums must be proved to fit 32 bits.

32-bit sums wrap around. They are requantised like int8 layers, see `mul_hi`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from microfold.analysis.product_sum import has_wide_sums
from microfold.ir.types import Array, DType
from microfold.kernels.call import Parameter, SpecValue
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.mul_hi import RequantizeForm

# Bits by which M is larger than m.
SHIFT = 16
# With these shifts, neither the upper half of the product nor the addend exceeds 2^30: their sum fits 32
# bits.
SMALLEST_SHIFT, LARGEST_SHIFT = 17, 47
# A sum of this many products of int16 and int8 fits 32 bits. A multiple of all vector and group sizes.
CHUNK = 504


class Int16Requantization(Struct, frozen=True, eq=False):
    """Constants and instruction sequence that convert sums to int16.

    Attributes:
        form: suffix of the helper's C name. ``once``: `records` are (bias, M, 2^(s-17), s-16); ``wide``:
            `product_sum.wide_records`; others: `mul_hi.RequantizeForm`.
        records: int32 [channels, 4].
        long: whether sums need 64 bits; sums of up to `CHUNK` products never do.
    """

    form: str
    records: Array
    long: bool

    @property
    def cost(self) -> str:
        """Form whose measured cost is also used for this form."""
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
    """Return the shortest exact form except ``once``, whose helper only cores with DSP instructions have."""
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

    Every shift must be between `SMALLEST_SHIFT` and `LARGEST_SHIFT`.
    """
    bias, reduced, _, shift = records.astype(np.int64).T
    addend = np.int64(1) << (shift - SHIFT - 1)
    return np.stack([bias, reduced << SHIFT, addend, shift - SHIFT], axis=1).astype(np.int32)


def int16_clamping(layer: LayerContext) -> tuple[str, Mapping[str, Parameter]]:
    """Return the kind of clamping of int16 outputs, and its layer fields.

    Returns:
        ``none``, ``relu`` (to 0 and above), ``limited`` (to 0 and a maximum), or ``general``.
    """
    (low, high), (lowest, highest) = output_range.output_limits(layer), DType.INT16.range
    if (low, high) == (lowest, highest):
        return "none", {}
    if low == 0:
        return ("relu", {}) if high == highest else ("limited", {"output_maximum": high})
    return "general", {"output_minimum": low, "output_maximum": high}
