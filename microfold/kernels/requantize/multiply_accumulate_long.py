"""Requantisation by one long multiply-accumulate: the upper half of the sum is the output.

The output is a monotone step function of the accumulator, see `mul_lo`. An affine function in 64 bits,

    y(x) = floor((x * m + C) / 2^32)

has the same steps, for multipliers below one half that are not too small. Biases are folded into C.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array
from microfold.kernels.call import Constant, Parameter
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.mul_lo import NEIGHBOURS, channel_records, find_breakpoints

FORM = "affine"


def plan_affine(
    bias: Array,
    bounds: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    zero_point: int,
    limits: tuple[int, int],
) -> Array | None:
    """Find the affine function of each channel, for sums without bias; None if some channel has none.

    Args:
        bias: int64 [channels].
        bounds: smallest and largest accumulator per channel, biases included.
        multipliers: the reference's mantissas and shifts per channel.
        zero_point: zero point of the output.
        limits: limits to which the output is clamped afterwards.

    Returns:
        int32 [channels, 3]: m, lower and upper half of C.
    """
    stairs = find_breakpoints(bounds, multipliers, zero_point, limits)
    if stairs is None or np.abs(bias).max() >= 1 << 30:
        return None
    mantissas, shifts = (np.broadcast_to(part, bias.shape) for part in multipliers)
    fitting = stairs.first == stairs.last
    m, c = np.zeros_like(bias), stairs.first << 32
    nearest = mantissas.astype(np.int64) >> np.clip(-1 - shifts, 0, 31)
    for offset in sorted(range(-NEIGHBOURS, NEIGHBOURS + 1), key=abs):
        candidate = nearest + offset
        smallest, largest = stairs.constants(candidate, np.full_like(bias, 32))
        middle = smallest // 2 + largest // 2
        fits = (smallest <= middle) & (middle <= largest) & (shifts < 0)
        fits &= (candidate > 0) & (candidate < 1 << 31)
        new = fits & ~fitting
        m, c, fitting = np.where(new, candidate, m), np.where(new, middle, c), fitting | fits
    if not fitting.all():
        return None
    c = c + bias * m
    return np.stack([m, c & 0xFFFFFFFF, c >> 32], axis=1).astype(np.uint32).view(np.int32)


def expects_short_form(layer: LayerContext, *, narrow: bool) -> bool:
    """Estimate whether requantisation ends with saturation and needs no sign correction."""
    out = output_table.sum_type(layer.node)
    assert out.quant is not None
    if output_range.clamping(layer.node)[0]:
        return False
    return narrow or output_range.integer_bounds(layer.node)[0] >= out.quant.zero_point


class SumRecords(Struct, frozen=True, eq=False):
    """Requantisation of a product sum.

    Attributes:
        form: suffix of the helper's C name.
        constant: the channels' records; for FORM they have no biases.
        clamp: whether the output is clamped within its type's range.
        limits: layer fields of the clamp.
    """

    form: str
    constant: Constant
    clamp: bool
    limits: Mapping[str, Parameter]


def sum_records(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array], *, narrow: bool
) -> SumRecords:
    """Return affine functions, or `channel_records` if a channel has none or the core has no long product.

    Args:
        matrix: the weights as [channels, K], any zero point subtracted.
        multipliers: the reference's mantissas and shifts per channel.
        narrow: whether the core has no 64-bit product.
    """
    out = output_table.sum_type(layer.node)
    assert out.quant is not None
    if not narrow:
        bias, bounds = product_sum.bias_and_bounds(layer, matrix)
        functions = plan_affine(
            bias, bounds, multipliers, out.quant.zero_point, output_range.integer_bounds(layer.node)
        )
        if functions is not None:
            clamp, fields = output_range.clamping(layer.node)
            return SumRecords(FORM, Constant("channels", functions, record="mf_affine"), clamp, fields)
    form, records, clamp, fields = channel_records(layer, matrix, multipliers, narrow=narrow)
    return SumRecords(form, Constant("channels", records, record="mf_channel"), clamp, fields)
