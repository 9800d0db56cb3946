"""One function for all int8 convolutions of a model, for cores with DSP instructions.

What the kernels of `conv2d.dsp` and `conv2d.dsp_tile` choose at compile time is in the layer here, so that
all layers share the code: a third of theirs for one layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.dsp import plan_requantization
from microfold.kernels.conv2d.portable import (
    SHAPE_FIELDS,
    conv_types,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, Trade, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import smlad
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.multiply_high import RequantizeForm
from microfold.kernels.requantize.packed_record import PackedRequantization, pack_records
from microfold.kernels.requantize.shifted_sum import SmladRequantization
from microfold.ops.convolution.conv2d import Conv2D

# Computed together.
PIXELS = 4
# The words behind the panel.
END_BYTES = 8
# Of the function.
FIELDS = declare(
    Field("weights", "a stream of biases, pairs of weights and requantisation, two channels at a time"),
    Field("middle", "what zero is, before outputs are shifted to the right"),
    Field("pairs", "of inputs of a patch: an even number"),
    Field("segment", "bytes under a row of the window"),
    *SHAPE_FIELDS,
    "input_zero_point",
    Field("clamp", "whether the bounds are narrower than int8"),
    *output_range.LIMIT_FIELDS,
)


def compact_call(
    layer: LayerContext, plan: SmladRequantization, segment: int, shape: dict[str, Parameter], *, apart: bool
) -> KernelCall:
    """The call of the function.

    Args:
        plan: requantisation of the output channels; with a common shift, records have two words.
        segment: neighbouring inputs that are widened together.
        shape: the fields of `shape_parameters`.
        apart: whether there are windows with gaps, or that are not all in the image.
    """
    x = layer.node.operands[0].type
    assert x.quant is not None
    plan = _even(plan)
    lanes = _even_pairs(smlad.pair_lanes(plan.matrix, segment))
    packed = "paired" if smlad.fits_paired(plan.matrix, plan.bounds) else "int16"
    low, high = output_range.output_limits(layer)
    # SHORT does for SHORT_RELU too: what it corrects is clamped there.
    general = plan.form is RequantizeForm.GENERAL
    spec = (("packing", packed), ("general", general), ("shift", plan.shift))
    records = compact_records(layer, plan) if plan.shift else None
    if records is None:
        stream = smlad.smlad_stream(packed, lanes, plan)
    else:
        stream = smlad.packed_stream(packed, lanes, records.records)
    parameters: dict[str, Parameter] = {
        "weights": Constant("weights", stream),
        "pairs": lanes.shape[1],
        "segment": segment,
        **shape,
        "input_zero_point": x.quant.zero_point,
        "clamp": int((low, high) != (-128, 127)),
        "output_minimum": low,
        "output_maximum": high,
    }
    if general:
        # It always clamps.
        del parameters["clamp"]
    if records is not None:
        parameters["middle"] = records.middle
    # The panel, the words behind it, and a row of the window that is not one run of bytes.
    scratch = 4 * PIXELS * lanes.shape[1] + END_BYTES + (segment if apart else 0)
    return KernelCall(
        CFunction("conv2d/dsp_compact.c.j2", Conv2DCompactDsp.name, spec, FIELDS),
        parameters,
        scratch,
    )


def refuses_packed(layer: LayerContext, plan: SmladRequantization) -> str | None:
    """The reason if two words for each channel do not suffice."""
    if compact_records(layer, plan) is None:
        return "its channels must have one shift to the right, and small biases"
    return None


def compact_records(layer: LayerContext, plan: SmladRequantization) -> PackedRequantization | None:
    """Two words for each channel; None if they do not suffice."""
    out = layer.node.outputs[0].type
    assert out.quant is not None
    return pack_records(plan, out.quant.zero_point)


def compact_terms(pixels: int, channels: int, pairs: int, general: bool) -> Terms:
    """Without the widening of inputs, for any number of pixels."""
    steps = pairs + pairs % 2
    groups = -(-pixels // PIXELS)
    blocks = groups * ((channels + 1) // 2)
    if general:
        found = Terms(general_group=groups, general_block=blocks, general_channel=groups * channels)
        return found + Terms(general_output=pixels * channels, step=blocks * steps)
    return Terms(block=blocks, step=blocks * steps)


def _even(plan: SmladRequantization) -> SmladRequantization:
    """With the last one of an odd number of channels twice."""
    channels = len(plan.left)
    order = np.minimum(np.arange(channels + channels % 2), channels - 1)
    low, high = plan.bounds
    return replace(
        plan,
        left=plan.left[order],
        matrix=plan.matrix[order],
        bounds=(low[order], high[order]),
        records=plan.records[order],
    )


def _even_pairs(lanes: Array) -> Array:
    """With a pair of zeros behind an odd number of pairs."""
    return np.pad(lanes, ((0, 0), (0, lanes.shape[1] % 2), (0, 0)))


@register
class Conv2DCompactDsp(Kernel):
    """Widens the patches of four pixels to int16, then computes blocks of 4 pixels by 2 channels.

    `weights` are the stream of `smlad_stream`, with an even number of pairs and of channels.
    `plan_smlad_requantization` proves the form, with a shift of its own for each channel.
    """

    name = "s8_conv2d__dsp_compact"
    op = Conv2D
    features = frozenset({"dsp"})
    trades = frozenset({Trade.ONE_FOR_ALL})
    code = 950
    fields = FIELDS
    # Whether all channels are to have one shift to the right.
    COMMON: ClassVar[bool] = False

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_integer_conv(layer)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = conv_types(layer)
        pixels, segment = out.size // out.shape[3], _segment(layer)
        edges = 1 - out.shape[0] * window.positions_inside(*x.shape[1:3]) / pixels
        if window.dilations[1] > 1:
            edges = 1.0
        rows = pixels * window.size[0]
        widen = Terms(
            call=1,
            pixel=pixels,
            row=rows,
            widened=rows * segment,
            padded=rows * (segment % 4 != 0),
            edge_byte=rows * edges * segment,
            edge_tap=rows * edges * window.size[1],
        )
        general = not self.COMMON and self._plan(layer).form is RequantizeForm.GENERAL
        return widen + compact_terms(pixels, out.shape[3], _pairs(layer), general)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        return window_overlap(x, out, window, PIXELS, across_rows=True)

    def reads_rows(self, layer: LayerContext) -> bool:
        return True

    def rows_held(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        window = conv_types(layer)[3]
        apart = window.dilations[1] > 1 or window.padding != ((0, 0), (0, 0))
        plan = self._plan(layer)
        return compact_call(layer, plan, _segment(layer), shape_parameters(layer), apart=apart)

    def _plan(self, layer: LayerContext) -> SmladRequantization:
        return plan_requantization(layer, common=self.COMMON)


@register
class Conv2DCompactPackedDsp(Conv2DCompactDsp):
    """The same with two words for each channel instead of four, where all have one shift to the right.

    `weights` are the stream of `packed_stream`.
    """

    name = "s8_conv2d__dsp_compact_packed"
    like = Conv2DCompactDsp.name
    COMMON = True

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or refuses_packed(layer, self._plan(layer))


def _segment(layer: LayerContext) -> int:
    """Inputs under a row of the window."""
    x, _, _, window = conv_types(layer)
    return window.size[1] * x.shape[3]


def _pairs(layer: LayerContext) -> int:
    """Pairs of inputs of a patch."""
    return conv_types(layer)[3].size[0] * smlad.pair_order(_segment(layer)).shape[0]
