"""Depthwise convolution in portable C, and the helpers that all depthwise kernels share.

A channel is copied to a plane with its padding. Windows in the plane never cross an edge, and pixels of a row
are adjacent. If image and window are one pixel wide, the column is read as a row, see `as_row`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Array, DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import float16_weights, product_sum
from microfold.kernels.requantize import mul_hi, output_range, output_table
from microfold.kernels.requantize.finish import OutputStage, clamped_finish
from microfold.kernels.requantize.int16_sums import Int16Requantization, plan_portable
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D
from microfold.ops.window import Window


def depthwise_types(layer: LayerContext) -> tuple[TensorType, TensorType, TensorType, Window]:
    """Return the types of input, filter [1, KH, KW, OC] and output, and the window."""
    x, weights = layer.node.inputs[0], layer.node.inputs[1]
    assert (
        x is not None
        and weights is not None
        and isinstance(layer.node.op, DepthwiseConv2D | HybridDepthwiseConv2D)
    )
    return x.type, weights.type, output_table.sum_type(layer.node), layer.node.op.window(weights.type)


def depthwise_matrix(layer: LayerContext) -> Array:
    """Return the constant filters as [output channels, KH * KW]."""
    filters = layer.array(1)
    assert filters is not None
    return np.ascontiguousarray(filters.reshape(-1, filters.shape[3]).T)


def channel_multiplier(layer: LayerContext) -> int:
    """Return the number of output channels per input channel."""
    x, _, out, _ = depthwise_types(layer)
    return out.shape[3] // x.shape[3]


def unsupported_integer_depthwise(layer: LayerContext, *, tables: bool = False) -> str | None:
    """Return the reason why no int8 depthwise kernel supports the layer, or None.

    Any channel multiplier is accepted.

    Args:
        tables: whether the kernel also supports a lookup table for outputs.
    """
    reason = product_sum.unsupported_int8_constants(layer, tables=tables)
    return reason or product_sum.unsupported_bounds(layer, depthwise_matrix(layer))


def channel_records(layer: LayerContext) -> tuple[mul_hi.Requantization, Mapping[str, Parameter]]:
    """Return the requantisation of an int8 depthwise convolution, and the output limits as layer fields."""
    multipliers = product_sum.channel_multipliers(layer)
    return product_sum.output_records(layer, depthwise_matrix(layer), multipliers)


def plane_in_place(x: TensorType, out: TensorType) -> bool:
    """Return whether a kernel that copies each channel to a plane can compute the layer in place.

    The kernel copies a channel of the input before it writes that channel of the output. With one output
    channel per input channel, and an image that does not grow, output pixel p of channel c overwrites input
    pixel p of channel c, which has been copied.
    """
    fits = out.shape[1] * out.shape[2] <= x.shape[1] * x.shape[2]
    return fits and x.shape[3] == out.shape[3]


# Maximum number of adjacent outputs of a row that are computed together.
MAXIMUM_BLOCK = 6
UNROLLED_TAPS = 5  # Largest width of a window that is unrolled.


class _Plane(Struct, frozen=True):
    """Padded copy of one channel, of the size that blocks of outputs read.

    Attributes:
        block: adjacent outputs of a row that are computed together.
        size: rows and columns.
    """

    x: TensorType
    out: TensorType
    window: Window
    block: int
    size: tuple[int, int]


def as_row(x: TensorType, out: TensorType, window: Window) -> tuple[TensorType, TensorType, Window]:
    """Convert a column of pixels and a column of taps to rows, whose bytes have the same order."""
    if (x.shape[2], out.shape[2], window.size[1], window.padding[1]) != (1, 1, 1, (0, 0)):
        return x, out, window
    turned = Window(
        (1, window.size[0]), (1, window.strides[0]), (1, window.dilations[0]), ((0, 0), window.padding[0])
    )
    return _turn(x), _turn(out), turned


def _turn(t: TensorType) -> TensorType:
    batch, height, width, channels = t.shape
    return t.with_shape((batch, width, height, channels))


def _plan_plane(layer: LayerContext) -> _Plane:
    x, _, out, window = depthwise_types(layer)
    if not layer.indirection_buffer:
        x, out, window = as_row(x, out, window)
    taps, columns = window.size[1], out.shape[2]

    def row_cost(block: int) -> int:
        """Estimate the instructions for one row of outputs on a core with 13 registers."""
        inputs = (block - 1) * window.strides[1] + taps if taps <= UNROLLED_TAPS else block * taps
        return -(-columns // block) * (25 + 10 * block + window.size[0] * (4 + taps + inputs + block * taps))

    block = min(range(1, min(MAXIMUM_BLOCK, columns) + 1), key=row_cost)
    last = (out.shape[1] - 1, -(-columns // block) * block - 1)
    rows, width = (
        last[i] * window.strides[i] + (window.size[i] - 1) * window.dilations[i] + 1 for i in range(2)
    )
    return _Plane(x, out, window, block, (rows, width))


def _copied(x: TensorType, window: Window, size: tuple[int, int]) -> tuple[int, int]:
    """Return the number of rows and columns of the image in a plane of some size."""
    (top, _), (left, _) = window.padding
    return max(min(x.shape[1], size[0] - top), 0), max(min(x.shape[2], size[1] - left), 0)


PLANE_FIELDS = declare(
    "batch",
    "input_pixels",
    "input_width",
    "input_channels",
    "output_height",
    "output_width",
    "channel_multiplier",
    "kernel_height",
    "kernel_width",
    Field("plane_size", "elements of a padded channel"),
    "plane_width",
    Field("plane_start", "offset of the image in the plane"),
    "copied_rows",
    "copied_columns",
    Field("row_step", "elements of the plane from the inputs of one output row to the next"),
    Field("tap_step", "elements of the plane from the inputs of one kernel row to the next"),
)
# The fields of `PLANE_FIELDS` that are `Kernel.pitch_fields`.
PLANE_PITCH_FIELDS = frozenset({"input_pixels", "input_width"})


def plane_parameters(
    x: TensorType, out: TensorType, window: Window, size: tuple[int, int]
) -> dict[str, Parameter]:
    """Return the values of `PLANE_FIELDS`.

    Args:
        size: rows and columns of the plane, including padding.
    """
    rows, width = size
    copied_rows, copied_columns = _copied(x, window, size)
    return {
        "batch": x.shape[0],
        "input_pixels": x.shape[1] * x.shape[2],
        "input_width": x.shape[2],
        "input_channels": x.shape[3],
        "output_height": out.shape[1],
        "output_width": out.shape[2],
        "channel_multiplier": out.shape[3] // x.shape[3],
        "kernel_height": window.size[0],
        "kernel_width": window.size[1],
        "plane_size": rows * width,
        "plane_width": width,
        "plane_start": window.padding[0][0] * width + window.padding[1][0],
        "copied_rows": copied_rows,
        "copied_columns": copied_columns,
        "row_step": window.strides[0] * width,
        "tap_step": window.dilations[0] * width,
    }


class PlaneDepthwise(Kernel):
    """Base class of kernels that copy a channel to a padded plane, then compute up to 6 outputs together.

    Weights are [output channels][kernel_height][kernel_width].
    """

    fields = declare(
        Field("weights", "[output channels][kernel_height][kernel_width]"),
        "channels",
        "input_zero_point",
        *PLANE_FIELDS,
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )
    pitch_fields = PLANE_PITCH_FIELDS

    def terms(self, layer: LayerContext) -> Terms:
        plane = _plan_plane(layer)
        images, channels = plane.x.shape[0] * plane.x.shape[3], plane.x.shape[0] * plane.out.shape[3]
        copied_rows, columns = _copied(plane.x, plane.window, plane.size)
        rows = channels * plane.out.shape[1]
        blocks = rows * -(-plane.out.shape[2] // plane.block)
        kernel_rows = blocks * plane.window.size[0]
        return Terms(
            call=1,
            copied_row=images * copied_rows,
            copied=images * copied_rows * columns,
            channel=channels,
            row=rows,
            block=blocks,
            output=blocks * plane.block,
            kernel_row=kernel_rows,
            product=kernel_rows * plane.block * plane.window.size[1],
        )

    def in_place(self, layer: LayerContext, index: int) -> bool:
        x, _, out, _ = depthwise_types(layer)
        return plane_in_place(x, out)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def call(self, layer: LayerContext, template: str, finish: OutputStage) -> KernelCall:
        """Return the call, in which `finish` computes outputs from sums."""
        plane = _plan_plane(layer)
        x, out, window = plane.x, plane.out, plane.window
        spec = (
            *finish.spec,
            ("block", plane.block),
            ("kernel_width", window.size[1] if window.size[1] <= UNROLLED_TAPS else 0),
            ("stride_width", window.strides[1]),
            ("dilation_width", window.dilations[1]),
        )
        size = plane.size[0] * plane.size[1]
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", depthwise_matrix(layer)),
            **finish.parameters,
            **plane_parameters(x, out, window, plane.size),
        }
        return KernelCall(
            CFunction(template, self.name, spec, self.fields), parameters, size * x.dtype.itemsize
        )


@register
class DepthwiseConv2DInt8(PlaneDepthwise):
    """int8 depthwise convolution with int32 sums. `channels` has records (bias, multiplier, addend, shift).

    `channel_records` proves their form. If sums may exceed 32 bits, they are computed in 64 bits and wrapped
    around as in the reference.
    """

    name = "s8_depthwise_conv2d__c_plane"
    op = DepthwiseConv2D
    code = 450
    weights: ClassVar[DType] = DType.INT8

    def supports(self, layer: LayerContext) -> str | None:
        return product_sum.unsupported_constants(layer, DType.INT8, self.weights, tables=True)

    def terms(self, layer: LayerContext) -> Terms:
        return super().terms(layer) + output_table.table_terms(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, _, _ = depthwise_types(layer)
        assert x.quant is not None
        plan, _ = channel_records(layer)
        records = Constant("channels", plan.records, record="mf_channel")
        choice = (("requantize", plan.form.value), ("weight_type", f"{self.weights.value}_t"))
        call = self.call(layer, "depthwise_conv2d/portable.c.j2", clamped_finish(layer, records, choice))
        return replace(call, parameters=dict(call.parameters) | {"input_zero_point": x.quant.zero_point})


@register
class DepthwiseConv2DInt8Wide(DepthwiseConv2DInt8):
    """`DepthwiseConv2DInt8` with int16 weights, which are legacy uint8 weights minus their zero point."""

    name = "s8_s16w_depthwise_conv2d__c_plane"
    like = "s8_depthwise_conv2d__c_plane"
    weights = DType.INT16


@register
class DepthwiseConv2DFloat(PlaneDepthwise):
    """float32 depthwise convolution in the reference's order of accumulation: all products, then the bias."""

    name = "f32_depthwise_conv2d__c_plane"
    op = DepthwiseConv2D
    fields = describe(PlaneDepthwise.fields, channels="biases")
    half: ClassVar[bool] = False

    def supports(self, layer: LayerContext) -> str | None:
        return product_sum.unsupported_constants(layer, DType.FLOAT32, DType.FLOAT32)

    def lower(self, layer: LayerContext) -> KernelCall:
        biases = Constant("biases", product_sum.float_biases(layer, depthwise_types(layer)[2].shape[3]))
        call = self.call(
            layer, "depthwise_conv2d/f32.c.j2", clamped_finish(layer, biases, (("half", self.half),))
        )
        return float16_weights.with_half_weights(call) if self.half else call


@register
class DepthwiseConv2DFloatHalf(float16_weights.HalfWeights, DepthwiseConv2DFloat):
    """float32 depthwise convolution with float16 weights, converted for blocks of outputs.

    `HalfWeights` proves that the conversion is exact.
    """

    name = "f32_f16w_depthwise_conv2d__c_plane"
    fields = describe(
        DepthwiseConv2DFloat.fields, weights="float16, [output channels][kernel_height][kernel_width]"
    )

    def conversions(self, layer: LayerContext) -> float:
        return layer.node.macs() / _plan_plane(layer).block


@register
class DepthwiseConv2DInt16(PlaneDepthwise):
    """Depthwise convolution of int16 activations and int8 weights.

    `plan_portable` proves the form of the records.
    """

    name = "s16_depthwise_conv2d__c_plane"
    op = DepthwiseConv2D

    def supports(self, layer: LayerContext) -> str | None:
        reason = product_sum.unsupported_constants(layer, DType.INT16, DType.INT8)
        if reason is None and self._plan(layer) is None:
            return "a bias or a multiplier is too large"
        return reason

    def _plan(self, layer: LayerContext) -> Int16Requantization | None:
        return plan_portable(layer, depthwise_matrix(layer), product_sum.channel_multipliers(layer))

    def lower(self, layer: LayerContext) -> KernelCall:
        plan = self._plan(layer)
        assert plan is not None
        records = Constant("channels", plan.records, record="mf_channel")
        return self.call(layer, "depthwise_conv2d/s16.c.j2", clamped_finish(layer, records, plan.choice))
