"""Convolution in portable C, and the helpers that all convolution kernels share.

A patch has all inputs under the window of one output pixel. Kernels gather it in the scratch, except in
pointwise layers, where it is an input pixel. Filters are rows of a matrix [channels, patch].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from microfold.ir.types import Array, DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import float16_weights, product_sum
from microfold.kernels.requantize import mul_hi, output_range, output_table
from microfold.kernels.requantize.finish import OutputStage, clamped_finish
from microfold.kernels.requantize.int16_sums import Int16Requantization, plan_portable
from microfold.kernels.shapes import IMAGE_FIELDS, WINDOW_FIELDS, image_parameters, window_parameters
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D
from microfold.ops.window import Window


def conv_types(layer: LayerContext) -> tuple[TensorType, TensorType, TensorType, Window]:
    """Return the types of input, filter and output (before any table lookup), and the window."""
    x, weights = layer.node.inputs[0], layer.node.inputs[1]
    assert x is not None and weights is not None and isinstance(layer.node.op, Conv2D | HybridConv2D)
    return x.type, weights.type, output_table.sum_type(layer.node), layer.node.op.window(weights.type)


def is_pointwise(window: Window) -> bool:
    """Return whether each output pixel reads one input pixel, so that no patch has to be gathered."""
    return window.size == window.strides == (1, 1) and window.padding == ((0, 0), (0, 0))


def filter_matrix(layer: LayerContext) -> Array:
    """Return the constant filters as [output channels, K]; K is window rows, columns, input channels."""
    filters = layer.array(1)
    assert filters is not None
    return filters.reshape(filters.shape[0], -1)


def unsupported_grouping(layer: LayerContext) -> str | None:
    """Return the reason if each filter reads only some of the input channels, else None."""
    x, weights, _, _ = conv_types(layer)
    return "it does not compute grouped convolutions" if weights.shape[3] != x.shape[3] else None


def unsupported_integer_conv(layer: LayerContext, *, tables: bool = False) -> str | None:
    """Return the reason why no int8 convolution kernel supports the layer, or None.

    Args:
        tables: whether the kernel also supports a lookup table for outputs.
    """
    reason = unsupported_grouping(layer) or product_sum.unsupported_int8_constants(layer, tables=tables)
    return reason or product_sum.unsupported_bounds(layer, filter_matrix(layer))


SHAPE_FIELDS = (*IMAGE_FIELDS, Field("output_channels"), *WINDOW_FIELDS)


def shape_parameters(layer: LayerContext) -> dict[str, Parameter]:
    """Return the values of `SHAPE_FIELDS`."""
    x, _, out, window = conv_types(layer)
    image = image_parameters(x, out)
    return {**image, "output_channels": out.shape[3], **window_parameters(window)}


# Fields of `patch_parameters`, after the lengths of a patch and of an output pixel.
PATCH_FIELDS = declare(
    Field("patch", "inputs of one output"), "output_channels", "pixels", *IMAGE_FIELDS, *WINDOW_FIELDS
)


def patch_parameters(layer: LayerContext, patches: int) -> tuple[dict[str, Parameter], int]:
    """Return the fields with which a kernel traverses the pixels, and the bytes of its scratch.

    Args:
        patches: bytes of the gathered patches. Pointwise layers need no scratch.
    """
    out, window = conv_types(layer)[2:]
    if is_pointwise(window):
        return {"pixels": out.size // out.shape[3]}, 0
    shape = shape_parameters(layer)
    if window.dilations[1] == 1:
        # The columns of a window are contiguous.
        del shape["dilation_width"]
    return shape, patches


def channel_records(
    layer: LayerContext, matrix: Array
) -> tuple[mul_hi.Requantization, Mapping[str, Parameter]]:
    """Return the requantisation of an int8 convolution, and the limits of the output as layer fields.

    Args:
        matrix: filters [channels, K].
    """
    multipliers = product_sum.channel_multipliers(layer)
    return product_sum.output_records(layer, matrix, multipliers)


class PatchConv(Kernel):
    """Base class of convolutions that gather the patches of 2 pixels, then compute 2 pixels by 2 channels.

    `weights` is [output_channels / 2][patch][2], padded with zeros after the last channel. Gathered patches
    are padded with zeros to a multiple of 4.
    """

    PIXELS = 2
    CHANNELS = 2
    fields = declare(
        Field("weights", "[output_channels / 2][patch][2]"),
        "channels",
        *PATCH_FIELDS,
        "input_zero_point",
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )

    def terms(self, layer: LayerContext) -> Terms:
        found = Terms(call=1, output=conv_types(layer)[2].size, product=layer.node.macs())
        return found + self.gathering(layer)

    def gathering(self, layer: LayerContext) -> Terms:
        """Count the code parts that copy patches byte by byte, as the memcpy of small C libraries does."""
        x, weights, out, window = conv_types(layer)
        if is_pointwise(window):
            return Terms()
        pixels = out.size // out.shape[3]
        patch = weights.size // weights.shape[0] * x.dtype.itemsize
        return Terms(patch_row=pixels * window.size[0], patch_byte=pixels * patch)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        # Every output channel needs the complete patch, which pointwise layers read in place.
        return window_overlap(
            x, out, window, self.PIXELS, reads_first=not is_pointwise(window), across_rows=True
        )

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def call(self, layer: LayerContext, template: str, finish: OutputStage) -> KernelCall:
        """Return the call, in which `finish` computes outputs from sums."""
        x, _, out, window = conv_types(layer)
        pointwise = is_pointwise(window)
        matrix = filter_matrix(layer)
        # With zeros at the end of gathered patches, the inner loop computes 4 products per iteration.
        missing = 0 if pointwise else -matrix.shape[1] % 4
        matrix = np.pad(matrix, ((0, 0), (0, missing)))
        depth = matrix.shape[1]
        spec = (
            *finish.spec,
            ("pointwise", pointwise),
            ("padded", missing > 0),
            ("dilated", window.dilations[1] > 1),
            ("unroll", product_sum.unroll_factor(depth)),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", product_sum.interleave_channels(matrix, self.CHANNELS)),
            **finish.parameters,
            "patch": depth,
            "output_channels": out.shape[3],
        }
        traversal, scratch = patch_parameters(layer, self.PIXELS * depth * x.dtype.itemsize)
        parameters |= traversal
        padded = describe(self.fields, patch="inputs of one output, padded with zeros")
        function = CFunction(template, self.name, spec, padded if missing else self.fields)
        return KernelCall(function, parameters, scratch)


@register
class Conv2DInt8(PatchConv):
    """int8 convolution with int32 sums. `channels` has records (bias, multiplier, addend, shift).

    `channel_records` proves their form. If sums may exceed 32 bits, they are computed in 64 bits and wrapped
    around as in the reference.
    """

    name = "s8_conv2d__c_2x2"
    op = Conv2D
    code = 550
    weights: ClassVar[DType] = DType.INT8

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_grouping(layer) or product_sum.unsupported_constants(
            layer, DType.INT8, self.weights, tables=True
        )

    def terms(self, layer: LayerContext) -> Terms:
        out = conv_types(layer)[2]
        pixels = out.size // out.shape[3]
        # The last pixel of an odd number is computed twice.
        outputs = -(-pixels // self.PIXELS) * self.PIXELS * out.shape[3]
        products = outputs * (layer.node.macs() // out.size)
        found = Terms(call=1, output=outputs, product=products) + self.gathering(layer)
        return found + output_table.table_terms(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, _, window = conv_types(layer)
        assert x.quant is not None
        plan, _ = channel_records(layer, filter_matrix(layer))
        records = Constant("channels", product_sum.pad_channels(plan.records, 2), record="mf_channel")
        choice = (("requantize", plan.form.value), ("weight_type", f"{self.weights.value}_t"))
        call = self.call(layer, "conv2d/portable.c.j2", clamped_finish(layer, records, choice))
        if is_pointwise(window):
            return call
        return replace(call, parameters=dict(call.parameters) | {"input_zero_point": x.quant.zero_point})


@register
class Conv2DInt8Wide(Conv2DInt8):
    """`Conv2DInt8` with int16 weights, which are legacy uint8 weights minus their zero point."""

    name = "s8_s16w_conv2d__c_2x2"
    like = "s8_conv2d__c_2x2"
    weights = DType.INT16


@register
class Conv2DFloat(PatchConv):
    """float32 convolution in the reference's order of accumulation: all products, then the bias."""

    name = "f32_conv2d__c_2x2"
    op = Conv2D
    fields = describe(PatchConv.fields, channels="biases")
    half: ClassVar[bool] = False

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_grouping(layer) or product_sum.unsupported_constants(
            layer, DType.FLOAT32, DType.FLOAT32
        )

    def terms(self, layer: LayerContext) -> Terms:
        out = conv_types(layer)[2]
        # The last pixel of an odd number is computed twice. The padding after the last channel is computed.
        pixels = -(-(out.size // out.shape[3]) // self.PIXELS) * self.PIXELS
        channels = -(-out.shape[3] // self.CHANNELS) * self.CHANNELS
        products = pixels * channels * (layer.node.macs() // out.size)
        found = Terms(call=1, output=pixels * out.shape[3], product=products)
        return found + self.gathering(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        biases = product_sum.float_biases(layer, conv_types(layer)[2].shape[3])
        records = Constant("biases", product_sum.pad_channels(biases, 2))
        call = self.call(layer, "conv2d/f32.c.j2", clamped_finish(layer, records, (("half", self.half),)))
        return float16_weights.with_half_weights(call) if self.half else call


@register
class Conv2DFloatHalf(float16_weights.HalfWeights, Conv2DFloat):
    """float32 convolution with float16 weights, converted for every 2 pixels.

    `HalfWeights` proves that the conversion is exact.
    """

    name = "f32_f16w_conv2d__c_2x2"
    fields = describe(Conv2DFloat.fields, weights="float16, [output_channels / 2][patch][2]")

    def conversions(self, layer: LayerContext) -> float:
        return layer.node.macs() / PatchConv.PIXELS


@register
class Conv2DInt16(PatchConv):
    """Convolution of int16 activations and int8 weights. `plan_portable` proves the form of the records."""

    name = "s16_conv2d__c_2x2"
    op = Conv2D

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_grouping(layer) or product_sum.unsupported_constants(
            layer, DType.INT16, DType.INT8
        )
        if reason is None and self._plan(layer) is None:
            return "a bias or a multiplier is too large"
        return reason

    def _plan(self, layer: LayerContext) -> Int16Requantization | None:
        return plan_portable(layer, filter_matrix(layer), product_sum.channel_multipliers(layer))

    def lower(self, layer: LayerContext) -> KernelCall:
        plan = self._plan(layer)
        assert plan is not None
        records = Constant("channels", product_sum.pad_records(plan.records, 2), record="mf_channel")
        return self.call(layer, "conv2d/s16.c.j2", clamped_finish(layer, records, plan.choice))
