"""Transposed convolution by any convolution kernel.

With strides (s, t), the output is divided into blocks of s by t pixels. The pixels at the same position of
all blocks, a phase, are a convolution of the input with every s-th row and t-th column of the filter. All
s * t phases are one convolution of stride 1 with s * t times as many channels (W. Shi et al.,
https://arxiv.org/abs/1609.07009). For kernel size k and J = ceil(k / s), tap a of phase r is filter row
``r + s * (J - 1 - a)``, or zero if the filter has no such row. The kernel computes the convolution row by
row, then copies the channels of a row to their positions in the output.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.node import Value, make_node
from microfold.ir.types import Array, TensorType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.conv2d import dsp, f32_block, mve, packed_two_per_word, s16_dsp
from microfold.kernels.conv2d import portable as conv2d
from microfold.kernels.conv2d import s16_mve as conv2d_s16_mve
from microfold.kernels.conv2d.shared_conv_kernel import ByConvolution, register_by
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare, inner_fields
from microfold.kernels.layer import LayerContext
from microfold.kernels.movement.copy import copy_helper, copy_terms
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D

# Alignment of the convolution's scratch, which follows the band, in bytes.
_ALIGNMENT = 8
# Limit of the weights of a filter that is padded with zeros to a multiple of the stride: this number, or this
# multiple of the original weights.
MOST_PLACES, MOST_OF_AREA = 1024, 4


class Phases(Struct, frozen=True):
    """Phases of a transposed convolution along one axis.

    Attributes:
        taps: taps of the convolution.
        count: outputs of the convolution, which are blocks of `stride` outputs.
        start: index of the first output of the first block, zero or negative.
        padding: padding of the convolution.
    """

    stride: int
    taps: int
    count: int
    start: int
    padding: tuple[int, int]


def find_phases(size: int, kernel: int, stride: int, offset: int, outputs: int) -> Phases:
    """Return the phases of an axis.

    Args:
        size: number of inputs.
        kernel: number of taps.
        offset: number of outputs that are cropped at the start.
        outputs: number of outputs after cropping.
    """
    taps = -(-kernel // stride)
    first, last = offset // stride, (outputs - 1 + offset) // stride
    before = taps - 1 - first
    return Phases(stride, taps, last - first + 1, first * stride - offset, (before, last - (size - 1)))


def phase_filters(filters: Array, rows: Phases, columns: Phases) -> Array:
    """Convert OHWI filters to the filters of the convolution, with [phases][filters] as output channels."""
    count, height, width, depth = filters.shape
    tall = np.zeros((count, rows.taps * rows.stride, columns.taps * columns.stride, depth), filters.dtype)
    tall[:, :height, :width] = filters
    split = tall.reshape(count, rows.taps, rows.stride, columns.taps, columns.stride, depth)
    ordered = split[:, ::-1, :, ::-1].transpose(2, 4, 0, 1, 3, 5)
    return np.ascontiguousarray(ordered.reshape(-1, rows.taps, columns.taps, depth))


def _channel_copies(t: TensorType, copies: int) -> TensorType:
    """Return the type of a constant that is repeated along the channels, the first axis."""
    quant = t.quant
    if quant is not None and quant.axis is not None:
        quant = replace(quant, scales=quant.scales * copies, zero_points=quant.zero_points * copies)
    return replace(t, shape=(t.shape[0] * copies, *t.shape[1:]), quant=quant)


def convolution_layer(layer: LayerContext, rows: Phases, columns: Phases) -> LayerContext:
    """Return the convolution that computes the phases."""
    op = layer.node.op
    assert isinstance(op, TransposeConv2D)
    copies = rows.stride * columns.stride
    constants: dict[Value, Array] = {}
    for index in range(1, len(layer.node.inputs)):
        value, array = layer.node.inputs[index], layer.array(index)
        if value is None or array is None:
            continue
        array = phase_filters(array, rows, columns) if index == 1 else np.tile(array, copies)
        quant = _channel_copies(value.type, copies).quant
        constants[Value(value.name, replace(value.type, shape=array.shape, quant=quant))] = array
    x = layer.node.operands[0]
    convolution = Conv2D((1, 1), (1, 1), (rows.padding, columns.padding), op.out)
    node = make_node(convolution, [x, *constants], [layer.node.output.name], layer.node.epilogue)
    return replace(layer, node=node, constants=constants, ranges=None)


class _TransposeConv2DRows(ByConvolution, frozen=True):
    """Base class of kernels that compute rows of phases by a convolution kernel, with `phase_filters`.

    A row of all phases is computed into a band of the scratch, from which runs are copied to the output.
    Channels of the constants are [stride_height][stride_width][output_channels]. The convolution kernel must
    compute each output row separately, with the fields of `conv2d.shape_parameters`.
    """

    op = TransposeConv2D
    fields = declare(
        Field("convolution", "convolution of one row, whose channels are the outputs of a block"),
        "images",
        Field("input_image", "elements of an image"),
        "input_row",
        Field("rows", "rows of blocks of stride_height by stride_width outputs"),
        "columns",
        "stride_height",
        "stride_width",
        Field("top", "row of the output at which the first block begins, zero or negative"),
        "left",
        "output_height",
        "output_width",
        "output_channels",
        Field("band", "bytes of a row of blocks"),
    )
    pitch_fields = frozenset({"input_image", "input_row"})

    def convolved(self, layer: LayerContext) -> LayerContext:
        return convolution_layer(layer, *self._phases(layer))

    def supports(self, layer: LayerContext) -> str | None:
        if layer.array(1) is None:
            return "its filters must be constant"
        rows, columns = self._phases(layer)
        if min(*rows.padding, *columns.padding) < 0:
            return "it does not support inputs that no output depends on"
        weights = layer.node.operands[1].type
        area, places = (
            weights.shape[1] * weights.shape[2],
            rows.taps * rows.stride * columns.taps * columns.stride,
        )
        if places > max(MOST_PLACES, MOST_OF_AREA * area):
            return f"its filters of {area} weights would be padded with zeros to {places}"
        missing = any(
            axis.taps * axis.stride != weights.shape[1 + i] for i, axis in enumerate((rows, columns))
        )
        if missing and weights.dtype.is_float:
            # In floating point, a product with zero is not always zero.
            return "the filter's size must be a multiple of the stride"
        return self.convolution.supports(convolution_layer(layer, rows, columns))

    def terms(self, layer: LayerContext) -> Terms:
        rows, columns = self._phases(layer)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        run = columns.stride * out.shape[3] * out.dtype.itemsize
        runs = out.shape[0] * out.shape[1] * columns.count
        # Each row is one call of the convolution.
        return Terms(row=x.shape[0] * rows.count, run=runs) + copy_terms(runs, run)

    def row_granularity(self, layer: LayerContext) -> int:
        return self._phases(layer)[0].stride

    def supports_indirection(self, layer: LayerContext) -> bool:
        inner = self.convolved(layer)
        return conv2d.is_pointwise(conv2d.conv_types(inner)[3]) or self._variant.supports_indirection(inner)

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        rows, columns = self._phases(layer)
        inner = convolution_layer(layer, rows, columns)
        call = self._variant.lower(inner)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        pointwise = "pixels" in call.parameters
        one_row: dict[str, Parameter] = (
            {"pixels": columns.count} if pointwise else {"batch": 1, "output_height": 1}
        )
        copied = call.parameters.get("copied_pixels")
        if isinstance(copied, int):
            # The number for the whole image may exceed the pixels of a row.
            one_row["copied_pixels"] = min(copied, columns.count)
        band = rows.stride * columns.stride * columns.count * out.shape[3] * out.dtype.itemsize
        band += -band % _ALIGNMENT
        convolution = {**call.parameters, **one_row}
        parameters: dict[str, Parameter] = {
            f"convolution.{name}": value for name, value in convolution.items()
        }
        parameters |= {
            "images": x.shape[0],
            "input_image": x.size // x.shape[0],
            "input_row": x.shape[2] * x.shape[3],
            "rows": rows.count,
            "columns": columns.count,
            "stride_height": rows.stride,
            "stride_width": columns.stride,
            "top": rows.start,
            "left": columns.start,
            "output_height": out.shape[1],
            "output_width": out.shape[2],
            "output_channels": out.shape[3],
        }
        if not pointwise:
            # The convolution computes the position of its rows from the padding.
            del parameters["input_row"]
        if call.scratch:
            parameters |= {"band": band}
        spec = (
            *call.function.spec,
            ("row_template", call.function.template),
            ("row_scratch", call.scratch > 0),
            ("row_pointwise", pointwise),
            ("row_type", C_TYPES[out.dtype]),
            ("row_copy", copy_helper(layer)),
        )
        fields = (*inner_fields("convolution", call.function.fields), *self.fields)
        return KernelCall(
            CFunction("transpose_conv2d/as_conv2d.c.j2", self.name, spec, fields),
            parameters,
            band + call.scratch,
        )

    def _phases(self, layer: LayerContext) -> tuple[Phases, Phases]:
        op, x, weights = layer.node.op, layer.node.operands[0].type, layer.node.operands[1].type
        assert isinstance(op, TransposeConv2D)
        rows, columns = (
            find_phases(x.shape[1 + a], weights.shape[1 + a], op.strides[a], op.offset[a], op.size[a])
            for a in (0, 1)
        )
        return rows, columns


register_by(
    _TransposeConv2DRows,
    "Transposed convolution",
    {
        "s8_transpose_conv2d__c_2x2_rows": conv2d.Conv2DInt8,
        "s8_s16w_transpose_conv2d__c_2x2_rows": conv2d.Conv2DInt8Wide,
        "s16_transpose_conv2d__c_2x2_rows": conv2d.Conv2DInt16,
        "s8_transpose_conv2d__dsp_4x2_rows": dsp.Conv2DDsp,
        "f32_transpose_conv2d__fpu_4x4_rows": f32_block.Conv2DFloatFpu,
        "f32_f16w_transpose_conv2d__fpu_4x4_rows": f32_block.Conv2DFloatFpuHalf,
        "f32_transpose_conv2d__mve_4x4_rows": f32_block.Conv2DFloatMve,
        "f32_f16w_transpose_conv2d__mve_4x4_rows": f32_block.Conv2DFloatMveHalf,
        "s8_transpose_conv2d__mve_2x4_rows": mve.Conv2DMve,
        "s8_transpose_conv2d__thumb1_4x1_rows": packed_two_per_word.Conv2DThumb1,
        "s8_transpose_conv2d__thumb2_4x1_rows": packed_two_per_word.Conv2DThumb2,
        "s16_transpose_conv2d__dsp_4x2_rows": s16_dsp.Conv2DInt16Dsp,
        "s16_transpose_conv2d__mve_1x4_rows": conv2d_s16_mve.Conv2DInt16Mve,
    },
)
