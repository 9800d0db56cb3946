"""int8 depthwise convolution tap by tap, for cores with the DSP extension and layers with few outputs."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.portable import (
    channel_multiplier,
    channel_records,
    depthwise_matrix,
    depthwise_types,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum, smlad
from microfold.kernels.requantize import folded_bias, output_range, packed_record
from microfold.kernels.requantize.finish import clamped_finish
from microfold.kernels.requantize.folded_bias import plan_biasless
from microfold.kernels.requantize.packed_record import pack_records
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D

# Number of common left shifts of all sums that are tried, from the smallest possible one.
_MORE_SHIFTS = 3


@register
class DepthwiseConv2DTapsDsp(Kernel):
    """Depthwise convolution of 4 channels tap by tap, for windows without padding and with few outputs.

    SXTB16 widens words of four inputs and of four weights. SMLABB and SMLATT multiply one half of each.
    `weights` is [taps][channels]. `channels` has records (multiplier, addend), or (bias, multiplier, addend,
    shift), see `channel_records`, or the records of `packed_record`. `requantization` proves their form.
    """

    name = "s8_depthwise_conv2d__dsp_taps"
    op = DepthwiseConv2D
    features = frozenset({"dsp"})
    code = 540
    fields = declare(
        Field("weights", "[taps][channels]"),
        "channels",
        Field("middle", "output zero point plus one half, before the right shift"),
        "batch",
        Field("input_size", "bytes of an image"),
        "channel_count",
        "output_height",
        "output_width",
        Field("output_row_step", "bytes in the input from one output to the next, down and right"),
        "output_column_step",
        "tap_rows",
        "tap_columns",
        Field("tap_row_step", "bytes in the input from one tap to the next, down and right"),
        "tap_column_step",
        *output_range.LIMIT_FIELDS,
    )
    pitch_fields = frozenset({"input_size"})

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_depthwise(layer)
        if reason is not None:
            return reason
        x, _, _, window = depthwise_types(layer)
        if window.padding != ((0, 0), (0, 0)):
            return "it does not support padding"
        if channel_multiplier(layer) != 1 or x.shape[3] < 4:
            return "it requires one output channel per input channel, and at least 4 channels"
        return None

    def terms(self, layer: LayerContext) -> Terms:
        _, _, out, window = depthwise_types(layer)
        pixels = out.size // out.shape[3]
        blocks = pixels * -(-out.shape[3] // 4)
        clamped = output_range.proved_clamping(layer)[0]
        # If the code is compiled for size, sums do not stay in registers.
        small = "small_" if layer.compiled_for_size else ""
        return Terms(
            {
                "call": 1,
                "pixel": pixels,
                f"{small}block": blocks,
                f"finished_{requantization(layer).form}": blocks,
                "clamped": blocks if clamped else 0,
                "line": blocks * min(window.size),
                f"{small}tap": blocks * window.size[0] * window.size[1],
            }
        )

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = depthwise_types(layer)
        return window_overlap(x, out, window, 1, reads_first=False)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = depthwise_types(layer)
        plan = requantization(layer)
        finish = clamped_finish(layer, plan.records, (("requantize", plan.form), *plan.choice))
        channels = x.shape[3]
        row = 1 if layer.indirection_buffer else x.shape[2] * channels
        steps = (window.dilations[0] * row, window.dilations[1] * channels)
        # A column of taps is treated as a row, which is a single loop.
        turned = window.size[1] == 1 and not layer.indirection_buffer
        shape: dict[str, Parameter] = {
            "weights": Constant("weights", np.ascontiguousarray(plan.matrix.T)),
            "batch": x.shape[0],
            "input_size": x.nbytes // x.shape[0],
            "channel_count": channels,
            "output_height": out.shape[1],
            "output_width": out.shape[2],
            "output_row_step": window.strides[0] * row,
            "output_column_step": window.strides[1] * channels,
            "tap_rows": window.size[1 if turned else 0],
            "tap_columns": window.size[0 if turned else 1],
            "tap_row_step": steps[1 if turned else 0],
            "tap_column_step": steps[0 if turned else 1],
        }
        fields = self.fields
        if layer.indirection_buffer:
            steps_down = "rows of the input, then bytes, from one %s to the next, down and right"
            fields = describe(fields, output_row_step=steps_down % "output", tap_row_step=steps_down % "tap")
        return KernelCall(
            CFunction("depthwise_conv2d/dsp_taps.c.j2", self.name, finish.spec, fields),
            shape | dict(plan.parameters) | dict(finish.parameters),
        )


class TapsRequantization(NamedTuple):
    """Requantisation of the sums of taps.

    Attributes:
        form: name of the form in templates.
        matrix: weights, int8 [channels, taps].
        records: records of the channels.
        choice: compile-time choices of forms with two words: the final right shift, and for the form without
            biases, the left shift of all sums before.
        parameters: layer fields for all channels.
    """

    form: str
    matrix: Array
    records: Constant
    choice: tuple[tuple[str, SpecValue], ...] = ()
    parameters: tuple[tuple[str, Parameter], ...] = ()


# The result is cached, because estimates and code ask for it in turn.
@lru_cache(maxsize=8)
def requantization(layer: LayerContext) -> TapsRequantization:
    """Return the requantisation with records of two words, if possible, else with `channel_records`."""
    out = depthwise_types(layer)[2]
    assert out.quant is not None
    multipliers = product_sum.channel_multipliers(layer)
    matrix = depthwise_matrix(layer)
    bias, bounds = product_sum.bias_and_bounds(layer, matrix)
    limits = output_range.integer_bounds(layer.node)
    slope = np.ldexp(multipliers[0].astype(np.float64), multipliers[1].astype(np.int64) - 31).max()
    # Multipliers have 31 bits.
    least = max(int(np.frexp(slope)[1]) + folded_bias.SHIFTS[0] + 1, 0)
    for left in range(least, least + _MORE_SHIFTS):
        plan = plan_biasless(bias, bounds, multipliers, out.quant.zero_point, limits, taken=left, most=0)
        if plan is not None:
            records = Constant("channels", plan.records, record="mf_biasless")
            choice = ("left", left), ("shift", plan.shift)
            return TapsRequantization(folded_bias.FORM, matrix, records, choice)
    # Packed records have half of the bytes, but need two more instructions for each output.
    packed = _packed(layer, matrix, multipliers) if layer.compiled_for_size else None
    if packed is not None:
        return packed
    biased, _ = channel_records(layer)
    records = Constant("channels", biased.records, record="mf_channel")
    return TapsRequantization(biased.form.value, matrix, records)


def _packed(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> TapsRequantization | None:
    """Return the requantisation with `packed_record`; None if it is not possible."""
    out = depthwise_types(layer)[2]
    assert out.quant is not None
    shifted = smlad.plan_requantization(layer, matrix, multipliers, common=True)
    packed = pack_records(shifted, out.quant.zero_point)
    if packed is None:
        return None
    records = Constant("channels", packed.records, record="mf_packed")
    choice, parameters = (("shift", packed.shift),), (("middle", packed.middle),)
    return TapsRequantization(packed_record.FORM, shifted.matrix, records, choice, parameters)
