"""Depthwise convolution of int16 activations and int8 weights for Helium (MVE)."""

from __future__ import annotations

import numpy as np

from microfold.analysis.product_sum import has_wide_sums
from microfold.ir.types import Array, DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.portable import (
    UNROLLED_TAPS,
    channel_multiplier,
    depthwise_matrix,
    depthwise_types,
)
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.finish import OutputStage
from microfold.kernels.requantize.int16_sums import Int16Requantization, plan_int16_requantization
from microfold.kernels.shapes import IMAGE_FIELDS, WINDOW_FIELDS, image_parameters, window_parameters
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.window import Window

# Number of int16 elements in a vector.
LANES = 8


def int16_depthwise_plan(layer: LayerContext) -> Int16Requantization | None:
    """Return the requantisation of an int16 layer; None if a bias or a multiplier does not fit."""
    return plan_int16_requantization(layer, depthwise_matrix(layer), product_sum.channel_multipliers(layer))


def unsupported_int16_depthwise(layer: LayerContext) -> str | None:
    """Return the reason why a kernel with 32-bit sums does not support the layer, or None."""
    reason = product_sum.unsupported_constants(layer, DType.INT16, DType.INT8)
    if reason is not None:
        return reason
    plan = int16_depthwise_plan(layer)
    if plan is None:
        return "a bias or a multiplier is too large"
    if plan.long or plan.form == "wide":
        return "sums may exceed 32 bits, or a multiplier is too large"
    return None


@register
class DepthwiseConv2DInt16Mve(Kernel):
    """Depthwise convolution of 1 pixel by 8 channels, with separate sums for even and odd lanes.

    `weights` is [blocks][kernel_height][kernel_width][8], see `pack_lanes`. `channels` is [blocks][3][8], see
    `pack_even_odd`. `plan_int16_requantization` proves the form of the records. With an indirection buffer,
    each row of the window is a loop; otherwise one loop computes all rows.
    """

    name = "s16_depthwise_conv2d__mve_8"
    op = DepthwiseConv2D
    features = frozenset({"mve"})
    fields = declare(
        Field("weights", "[blocks of 8 channels][kernel_height][kernel_width][8]"),
        Field("channels", "[blocks][3][8]: bias, multiplier, -shift; even channels, then odd ones"),
        Field("inputs", "[blocks][8], input channels of the output channels"),
        *IMAGE_FIELDS,
        "output_channels",
        *WINDOW_FIELDS,
        Field("inner_begin", "range of outputs of a row whose windows do not cross an edge"),
        "inner_end",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_int16_depthwise(layer)
        if reason is None and not has_wide_sums(layer.node):
            return "it does not support an int32 bias, with which sums are rounded twice"
        return reason

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = depthwise_types(layer)
        # Taps outside the image are skipped.
        rows, columns = (
            inside / outputs for inside, outputs in zip(_inside(x, out, window), out.shape[1:3], strict=True)
        )
        pixels = out.size // out.shape[3]
        blocks = pixels * -(-out.shape[3] // LANES)
        kind = "unrolled" if window.size[1] <= UNROLLED_TAPS else "looped"
        begin, end = _inner_columns(x, out, window)
        calls = out.shape[0] * out.shape[1] * (out.shape[2] - max(end - begin - 1, 0))
        return Terms(
            {
                "call": 1,
                "pixel": pixels,
                "block": blocks,
                f"{kind}_row": blocks * rows,
                f"{kind}_tap": blocks * rows * columns,
                "span": calls,
            }
        )

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = depthwise_types(layer)
        # Channels are written before the next channels of the same pixel are read.
        return window_overlap(x, out, window, 1, reads_first=False)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def finish(self, layer: LayerContext, lanes: Array) -> OutputStage:
        """Return the finish, which computes outputs from sums.

        Args:
            lanes: channels of each block, see `channel_lanes`.
        """
        plan = int16_depthwise_plan(layer)
        assert plan is not None
        clamp, limits = output_range.proved_clamping(layer)
        records = Constant("channels", pack_even_odd(plan.records, lanes))
        return OutputStage((("requantize", plan.form), ("clamp", clamp)), {"channels": records, **limits})

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = depthwise_types(layer)
        filters = layer.array(1)
        assert filters is not None
        multiplier, outputs = channel_multiplier(layer), out.shape[3]
        gathered = multiplier > 1 or outputs < LANES
        inner = _inner_columns(x, out, window)
        lanes = channel_lanes(outputs, moved=not gathered)
        finish = self.finish(layer, lanes)
        dilated = window.dilations != (1, 1)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", pack_lanes(filters, lanes)),
            **finish.parameters,
            **image_parameters(x, out),
            "output_channels": out.shape[3],
            **window_parameters(window),
            "inner_begin": inner[0],
            "inner_end": inner[1],
        }
        if not dilated:
            del parameters["dilation_height"], parameters["dilation_width"]
        if gathered:
            parameters["inputs"] = Constant("inputs", (lanes // multiplier).astype(np.uint16))
        spec = (
            *finish.spec,
            ("dilated", dilated),
            ("unrolled", window.size[1] if window.size[1] <= UNROLLED_TAPS else 0),
            ("gathered", gathered),
            ("moved", not gathered and outputs % LANES != 0),
            ("tail", gathered and outputs % LANES != 0),
        )
        return KernelCall(
            CFunction("depthwise_conv2d/s16_mve.c.j2", self.name, spec, self.fields), parameters
        )


def _inside(x: TensorType, out: TensorType, window: Window) -> tuple[int, int]:
    """Return the taps inside the image along the rows, and along the columns, summed over all windows."""
    counts: list[int] = []
    for axis in (0, 1):
        starts = np.arange(out.shape[1 + axis]) * window.strides[axis] - window.padding[axis][0]
        taps = starts[:, None] + np.arange(window.size[axis]) * window.dilations[axis]
        counts.append(int(np.count_nonzero((taps >= 0) & (taps < x.shape[1 + axis]))))
    return counts[0], counts[1]


def _inner_columns(x: TensorType, out: TensorType, window: Window) -> tuple[int, int]:
    """Return the range of outputs of a row whose windows do not cross the left or right edge."""
    begin = -(-window.padding[1][0] // window.strides[1])
    end = (x.shape[2] - window.extent[1] + window.padding[1][0]) // window.strides[1] + 1
    return begin, min(max(end, 0), out.shape[2])


def channel_lanes(channels: int, *, moved: bool) -> Array:
    """Return the channels of each block, int64 [blocks, 8].

    Args:
        moved: whether the last block starts earlier, to end with the last channel. Otherwise its remaining
            lanes repeat the last channel.
    """
    starts = np.arange(0, channels, LANES)
    if moved:
        starts = np.minimum(starts, channels - LANES)
    return np.minimum(starts[:, None] + np.arange(LANES), channels - 1)


def pack_lanes(filters: Array, lanes: Array) -> Array:
    """Reorder [1, KH, KW, channels] to [blocks, KH, KW, 8]."""
    return np.ascontiguousarray(filters[0][..., lanes].transpose(2, 0, 1, 3))


def pack_even_odd(records: Array, lanes: Array) -> Array:
    """Pack records of the form ``once`` of `Int16Requantization`, [channels, 4], as int32 [blocks, 3, 2, 4].

    A block has bias, multiplier and -shift, each for its even channels, then for the odd ones.
    """
    bias, multiplier, _, shift = records[lanes].transpose(2, 0, 1)
    rows = np.stack([bias, multiplier, -shift], axis=1).reshape(len(lanes), 3, LANES // 2, 2)
    return np.ascontiguousarray(rows.swapaxes(2, 3))
