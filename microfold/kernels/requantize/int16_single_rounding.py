"""Requantisation of product sums to int16, in one multiplication where sums have 32 bits.

The reference scales by ``m * 2^-s``, m of 16 bits, and rounds once (see
`numerics.multiply_int64_by_quantized_multiplier`). With M = 2^16 * m and s > 16,

    (x*m + 2^(s-1)) >> s = (floor(x*M / 2^32) + 2^(s-17)) >> (s-16)

because ``2^(s-1) * 2^16`` is a multiple of 2^32: the upper half of a product of 32 bits, an addend, a shift.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import Parameter
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.support.frozen import frozen

# Bits by which M is larger than m.
SHIFT = 16
# Neither the upper half of the product nor the addend exceeds 2^30: their sum has 32 bits.
SMALLEST_SHIFT, LARGEST_SHIFT = 17, 47
# No sum of so many products of int16 and int8 leaves 32 bits. A multiple of all vectors and groups.
CHUNK = 504


@frozen(eq=False)
class Int16Requantization:
    """How sums become int16.

    Attributes:
        form: ``once``: `records` are (bias, M, 2^(s-17), s-16); ``wide``: `product_sum.wide_records`.
        records: int32 [channels, 4].
        long: sums may need 64 bits; those of up to `CHUNK` products never do.
    """

    form: str
    records: Array
    long: bool


def plan_int16_requantization(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> Int16Requantization | None:
    """The shortest form that is exact; None if a bias or a multiplier is too large.

    Args:
        matrix: the weights as [channels, K].
        multipliers: the reference's mantissas and shifts per channel.
    """
    planned = product_sum.wide_records(layer, matrix, multipliers)
    if planned is None:
        return None
    records, accumulator = planned
    shift = records[:, 3]
    if accumulator != "int32_t":
        return Int16Requantization("wide", records, True)
    if int(shift.min()) < SMALLEST_SHIFT or int(shift.max()) > LARGEST_SHIFT:
        return Int16Requantization("wide", records, False)
    return Int16Requantization("once", once_records(records), False)


def once_records(records: Array) -> Array:
    """Records of ``wide`` whose shifts fit, int32 [channels, 4], as those of ``once``."""
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
