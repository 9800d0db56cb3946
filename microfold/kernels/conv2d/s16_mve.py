"""Convolution of int16 activations and int8 weights for Helium (MVE), and the layout of its weights."""

from __future__ import annotations

import numpy as np

from microfold.analysis.product_sum import has_wide_sums
from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.portable import (
    PATCH_FIELDS,
    conv_types,
    filter_matrix,
    is_pointwise,
    patch_parameters,
)
from microfold.kernels.conv2d.s16_dsp import int16_plan, unsupported_int16_conv
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, Fields, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import mve, product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.dynamic_scale import SUMS, with_scale_fields
from microfold.kernels.requantize.finish import OutputStage
from microfold.kernels.requantize.int16_sums import CHUNK, Int16Requantization
from microfold.ops.convolution.conv2d import Conv2D

# Number of int16 elements in a vector.
LANES = 8


@register
class Conv2DInt16Mve(Kernel):
    """Convolution of 1 pixel by 4 channels, with 8 products per instruction, in a tail-predicated loop.

    `row_weights` defines the layout, int8 [channels / 4][vectors][4][8]. `plan_int16_requantization` proves
    the form of the records, and whether sums need 64 bits.
    """

    name = "s16_conv2d__mve_1x4"
    op = Conv2D
    features = frozenset({"mve"})

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int16_conv(layer)

    def terms(self, layer: LayerContext) -> Terms:
        plan = int16_plan(layer)
        assert plan is not None
        return self.product_terms(
            layer, row_terms(plan, filter_matrix(layer).shape[1], conv_types(layer)[2].shape[3])
        )

    def product_terms(self, layer: LayerContext, row: Terms) -> Terms:
        """Count the code parts that compute sums and outputs.

        Args:
            row: code parts that run for one pixel.
        """
        x, weights, out, window = conv_types(layer)
        depth = weights.size // weights.shape[0]
        pixels = out.size // out.shape[3]
        found = Terms(call=1) + pixels * row
        if not is_pointwise(window):
            segment = x.shape[3] * (1 if window.dilations[1] > 1 else window.size[1])
            segments = pixels * (depth // segment)
            found += Terms(patch=pixels, segment=segments, copied=segments * -(-segment // LANES))
        return found

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        return window_overlap(x, out, window, 1, reads_first=not is_pointwise(window))

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def finish(self, layer: LayerContext) -> OutputStage:
        """Return the finish, which computes outputs from sums."""
        plan = int16_plan(layer)
        assert plan is not None
        return row_finish(layer, plan, filter_matrix(layer), product_sum.channel_multipliers(layer))

    def pack(self, matrix: Array) -> Constant:
        """Return weights [channels, K] in the layout of the C code."""
        return row_weights(matrix)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        finish = self.finish(layer)
        pointwise = is_pointwise(window)
        matrix = filter_matrix(layer)
        spec = (
            *finish.spec,
            ("pointwise", pointwise),
            ("dilated", window.dilations[1] > 1),
            ("tail", out.shape[3] % mve.BLOCK != 0),
        )
        parameters: dict[str, Parameter] = {
            "weights": self.pack(matrix),
            **finish.parameters,
            "patch": matrix.shape[1],
            "output_channels": out.shape[3],
        }
        fields = row_fields(finish, PATCH_FIELDS)
        traversal, scratch = patch_parameters(layer, matrix.shape[1] * x.dtype.itemsize)
        parameters |= traversal
        return KernelCall(CFunction("conv2d/s16_mve.c.j2", self.name, spec, fields), parameters, scratch)


def row_fields(finish: OutputStage, traversal: Fields) -> Fields:
    """Return the fields of a kernel with `row_weights`, including the fields of its traversal."""
    form = dict(finish.spec)["requantize"]
    weights = Field("weights", "[outputs / 4][inputs / 8, rounded up][4][8]")
    if form == SUMS:
        return with_scale_fields((weights, *traversal))
    order = mve.record_order(mve.MveForm.GENERAL if form == "general" else mve.MveForm.RELU)
    channels = Field("channels", f"[outputs / 4]{order}" if form != "wide" else "")
    return declare(weights, channels, *traversal, *output_range.LIMIT_FIELDS)


def row_weights(matrix: Array) -> Constant:
    """Return weights as int8 [blocks of 4 channels, vectors, 4, 8].

    Args:
        matrix: weights [channels, K].
    """
    padded = product_sum.pad_channels(matrix, mve.BLOCK)
    padded = np.pad(padded, ((0, 0), (0, -padded.shape[1] % LANES)))
    blocks = padded.reshape(padded.shape[0] // mve.BLOCK, mve.BLOCK, -1, LANES)
    return Constant("weights", np.ascontiguousarray(blocks.swapaxes(1, 2)))


def nibble_rows(matrix: Array) -> Constant:
    """Return 4-bit weights as [blocks of 4 channels, vectors, 2, 8].

    Channels 0 and 1 of a block are in the lower nibbles, channels 2 and 3 in the upper ones.
    """
    rows = row_weights(matrix).array.view(np.uint8)
    joined = rows[:, :, :2] & 0xF | rows[:, :, 2:] << 4
    return Constant("weights", np.ascontiguousarray(joined).view(np.int8))


def row_finish(
    layer: LayerContext, plan: Int16Requantization, matrix: Array, multipliers: tuple[Array, Array]
) -> OutputStage:
    """Return the finish of rows of outputs, with the records of their channels.

    32-bit sums are requantised as in int8 kernels. Vectors wrap them around as the reference does.

    Args:
        matrix: weights [channels, K].
        multipliers: the reference's mantissas and shifts per channel.
    """
    clamp, limits = output_range.proved_clamping(layer)
    form, long = plan.form, plan.long
    if not has_wide_sums(layer.node):
        vector_form, records = mve.requantization(layer, matrix, multipliers, wrap=long)
        channels, form, long = Constant("channels", mve.block_words(records)), vector_form.value, False
    elif form == "once":
        bias, multiplier, _, shift = plan.records.T
        channels = Constant("channels", mve.block_words(np.stack([bias, multiplier, -shift], axis=1)))
    else:
        padded_records = product_sum.pad_records(plan.records, mve.BLOCK)
        channels = Constant("channels", padded_records, record="mf_channel")
    spec = (("requantize", form), ("long", long), ("clamp", clamp))
    return OutputStage(spec, {"channels": channels, **limits})


def row_terms(plan: Int16Requantization, depth: int, channels: int) -> Terms:
    """Count the code parts for all outputs of one row of inputs."""
    if plan.form != "wide":
        return sum_terms("once", depth, channels)
    found = sum_terms("wide", depth, channels)
    return found + Terms(chunk=found["block_wide"] * -(-depth // CHUNK))


def sum_terms(finish: str, depth: int, channels: int) -> Terms:
    """Count the code parts for all outputs of one row of inputs, if sums are not split into chunks.

    Args:
        finish: kind of the computation of outputs from sums.
    """
    blocks = -(-channels // mve.BLOCK)
    return Terms({"row": 1, f"block_{finish}": blocks, "vector": blocks * -(-depth // LANES)})
