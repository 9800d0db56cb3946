"""Generic int8 convolution for cores with the DSP extension: one function for all layers of a model.

The compile-time choices of `conv2d.dsp` and `conv2d.dsp_tile` are fields of the layer here, so that all
layers share the code. It has a third of the size of their code for one layer.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec.structs import replace

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
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import smlad
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.packed_record import PackedRequantization, pack_records
from microfold.kernels.requantize.pre_shifted_accumulator import SmladRequantization
from microfold.ops.convolution.conv2d import Conv2D

# Number of pixels that are computed together.
PIXELS = 4
# Size of the words after the panel.
END_BYTES = 8
# Fields of the function that all layers share.
FIELDS = declare(
    Field("weights", "a stream of biases, pairs of weights and requantisation, two channels at a time"),
    Field("middle", "output zero point plus one half, before the right shift"),
    Field("pairs", "pairs of inputs of a patch, an even number"),
    Field("segment", "bytes of a row of the window"),
    *SHAPE_FIELDS,
    "input_zero_point",
    Field("clamp", "1 if the limits are narrower than int8, else 0"),
    *output_range.LIMIT_FIELDS,
)


def compact_call(
    layer: LayerContext, plan: SmladRequantization, segment: int, shape: dict[str, Parameter], *, apart: bool
) -> KernelCall:
    """Return the call of the shared function.

    Args:
        plan: requantisation of the output channels. With a common shift, a channel's record can have 2 words.
        segment: adjacent inputs that are widened together.
        shape: the fields of `shape_parameters`.
        apart: whether some rows of windows are not contiguous bytes of the image, because of dilation or
            padding.
    """
    x = layer.node.operands[0].type
    assert x.quant is not None
    plan = _even(plan)
    lanes = _even_pairs(smlad.pair_lanes(plan.matrix, segment))
    packed = "paired" if smlad.fits_paired(plan.matrix, plan.bounds) else "int16"
    low, high = output_range.output_limits(layer)
    # SHORT also computes SHORT_RELU: the values that it corrects are clamped there.
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
        # The general form always clamps.
        del parameters["clamp"]
    if records is not None:
        parameters["middle"] = records.middle
    # The panel, the words after it, and a copy of a row of the window that is not contiguous.
    scratch = 4 * PIXELS * lanes.shape[1] + END_BYTES + (segment if apart else 0)
    return KernelCall(
        CFunction("conv2d/dsp_compact.c.j2", Conv2DCompactDsp.name, spec, FIELDS),
        parameters,
        scratch,
    )


def refuses_packed(layer: LayerContext, plan: SmladRequantization) -> str | None:
    """Return the reason if two words for each channel are not enough, else None."""
    if compact_records(layer, plan) is None:
        return "all channels must have the same right shift, and small biases"
    return None


def compact_records(layer: LayerContext, plan: SmladRequantization) -> PackedRequantization | None:
    """Return records of two words for each channel; None if two words are not enough."""
    out = layer.node.outputs[0].type
    assert out.quant is not None
    return pack_records(plan, out.quant.zero_point)


def compact_terms(pixels: int, channels: int, pairs: int, general: bool) -> Terms:
    """Count the code parts of the computation of some pixels, without the widening of inputs."""
    steps = pairs + pairs % 2
    groups = -(-pixels // PIXELS)
    blocks = groups * ((channels + 1) // 2)
    if general:
        found = Terms(general_group=groups, general_block=blocks, general_channel=groups * channels)
        return found + Terms(general_output=pixels * channels, step=blocks * steps)
    return Terms(block=blocks, step=blocks * steps)


def _even(plan: SmladRequantization) -> SmladRequantization:
    """Return the plan with an even number of channels, repeating the last one if necessary."""
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
    """Pad an odd number of pairs with a pair of zeros."""
    return np.pad(lanes, ((0, 0), (0, lanes.shape[1] % 2), (0, 0)))


@register
class Conv2DCompactDsp(Kernel):
    """Generic SMLAD convolution that widens the patches of 4 pixels, then computes 4 pixels by 2 channels.

    `weights` is the stream of `smlad_stream`, with an even number of pairs and of channels.
    `plan_smlad_requantization` proves the form, with a separate shift for each channel.
    """

    name = "s8_conv2d__dsp_compact"
    op = Conv2D
    features = frozenset({"dsp"})
    trades = frozenset({ResourceTradeoff.GENERIC_FUNCTION})
    code = 950
    fields = FIELDS
    # Whether all channels must have the same right shift.
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

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
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
    """`Conv2DCompactDsp` with records of 2 words for each channel instead of 4.

    All channels must have the same right shift. `weights` is the stream of `packed_stream`.
    """

    name = "s8_conv2d__dsp_compact_packed"
    like = Conv2DCompactDsp.name
    COMMON = True

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or refuses_packed(layer, self._plan(layer))


def _segment(layer: LayerContext) -> int:
    """Return the number of inputs in a row of the window."""
    x, _, _, window = conv_types(layer)
    return window.size[1] * x.shape[3]


def _pairs(layer: LayerContext) -> int:
    """Return the number of pairs of inputs of a patch."""
    return conv_types(layer)[3].size[0] * smlad.pair_order(_segment(layer)).shape[0]
