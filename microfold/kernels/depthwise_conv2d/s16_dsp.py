"""Depthwise convolution of int16 activations and int8 weights for cores with the DSP extension."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.portable import (
    PLANE_FIELDS,
    PLANE_PITCH_FIELDS,
    UNROLLED_TAPS,
    as_row,
    depthwise_matrix,
    depthwise_types,
    plane_in_place,
    plane_parameters,
)
from microfold.kernels.depthwise_conv2d.s16_mve import int16_depthwise_plan, unsupported_int16_depthwise
from microfold.kernels.fields import declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.finish import OutputStage
from microfold.kernels.requantize.int16_sums import int16_clamping
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.window import Window

# Maximum number of window rows that are unrolled, if the columns are.
UNROLLED_ROWS = 3


@register
class DepthwiseConv2DInt16Dsp(Kernel):
    """Depthwise convolution that copies a channel to a padded plane, whose words have two adjacent inputs.

    Up to 4 outputs of a row are computed together. Rows of the plane and blocks are word-aligned. If a window
    begins at an odd element, its first input is the upper half of a word, and pairs begin at the second tap.
    `pack_taps` defines the layout of the weights. `plan_int16_requantization` proves the form of the records.
    """

    name = "s16_depthwise_conv2d__dsp_1x4"
    op = DepthwiseConv2D
    features = frozenset({"dsp"})
    fields = declare(
        "weights",
        "channels",
        *PLANE_FIELDS,
        *output_range.LIMIT_FIELDS,
    )
    pitch_fields = PLANE_PITCH_FIELDS

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int16_depthwise(layer) or unsupported_taps(layer)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = _row_types(layer)
        block = _block(out.shape[2], window)
        planned = -(-out.shape[2] // block) * _block_cost(block, window)
        image = Terms(
            channel=out.shape[3],
            row=out.shape[3] * out.shape[1],
            planned=out.shape[3] * out.shape[1] * planned,
            plane=x.shape[3],
            plane_row=x.shape[3] * x.shape[1],
            copied=x.shape[3] * x.shape[1] * x.shape[2],
        )
        return Terms(call=1) + x.shape[0] * image

    def in_place(self, layer: LayerContext, index: int) -> bool:
        x, _, out, _ = depthwise_types(layer)
        return plane_in_place(x, out)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def finish(self, layer: LayerContext) -> OutputStage:
        """Return the finish, which computes outputs from sums."""
        plan = int16_depthwise_plan(layer)
        assert plan is not None
        clamp_kind, limits = int16_clamping(layer)
        records = Constant("channels", plan.records, record="mf_channel")
        return OutputStage(
            (("requantize", plan.form), ("clamp_kind", clamp_kind)), {"channels": records, **limits}
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = _row_types(layer)
        finish = self.finish(layer)
        height, width = window.size
        unrolled = width <= UNROLLED_TAPS
        both = unrolled and window.strides[1] % 2 == 1
        block = _block(out.shape[2], window)
        # The last block of a row may reach beyond the image.
        last = (-(-out.shape[2] // block) * block - 1) * window.strides[1]
        plane_width = last + width + 1 & ~1
        plane_height = (out.shape[1] - 1) * window.strides[0] + (height - 1) * window.dilations[0] + 1
        matrix = depthwise_matrix(layer).reshape(-1, height, width)
        spec = (
            *finish.spec,
            ("block", block),
            ("exact", out.shape[2] % block == 0),
            ("kernel_width", width if unrolled else 0),
            ("kernel_height", height if unrolled and height <= UNROLLED_ROWS else 0),
            ("stride_width", window.strides[1]),
            ("late_loads", layer.target.has("late_loads")),
        )
        size = plane_height * plane_width
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", pack_taps(matrix, both=both)),
            **finish.parameters,
            **plane_parameters(x, out, window, (plane_height, plane_width)),
        }
        if unrolled:
            del parameters["kernel_width"]
        order = "[output channels][kernel_height]: pairs of taps from the first one on"
        fields = describe(self.fields, weights=f"{order}, then from the second" if both else order)
        function = CFunction("depthwise_conv2d/s16_dsp.c.j2", self.name, spec, fields)
        return KernelCall(function, parameters, size * x.dtype.itemsize)


def unsupported_taps(layer: LayerContext) -> str | None:
    """Return the reason if the inputs of adjacent taps are not adjacent, else None."""
    if _row_types(layer)[3].dilations[1] > 1:
        return "it does not support dilation along rows"
    return None


def pack_taps(filters: Array, *, both: bool) -> Array:
    """Pack pairs of adjacent taps as words, with the first tap in the lower half.

    Args:
        filters: int8 [channels, KH, KW].
        both: whether to pack pairs from the first tap on, without an odd last tap, then pairs from the second
            tap on. Otherwise, and for a single tap, pairs from the first tap on, padded with a zero.

    Returns:
        int32 [channels, KH, words].
    """
    width = filters.shape[2]
    if both and width > 1:
        even, odd = filters[..., : width & ~1], filters[..., 1 : 1 + (width - 1 & ~1)]
        lanes = np.concatenate([even, odd], axis=2)
    else:
        lanes = np.pad(filters, ((0, 0), (0, 0), (0, width % 2)))
    return np.ascontiguousarray(lanes.astype("<i2")).view("<i4")


def _row_types(layer: LayerContext) -> tuple[TensorType, TensorType, TensorType, Window]:
    """Return the types of input, filter and output, and the window. A single column is read as a row."""
    x, weights, out, window = depthwise_types(layer)
    if not layer.indirection_buffer:
        x, out, window = as_row(x, out, window)
    return x, weights, out, window


def _block(columns: int, window: Window) -> int:
    return min((4, 2), key=lambda block: -(-columns // block) * _block_cost(block, window))


def _block_cost(block: int, window: Window) -> float:
    """Estimate the instructions for a block of outputs."""
    height, width = window.size
    if width > UNROLLED_TAPS:
        row = -(-width // 2) * (2 * block + 4) + 5
    else:
        words = (block - 1) * window.strides[1] + width + 1 >> 1
        row = block * (width / 2 + 0.5) + words / 2 + 3 + (3 if height > UNROLLED_ROWS else 0)
    return height * row + 6 * block + 10
