"""float16 depthwise convolution in portable C, and for Helium (MVE) with floats."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.f32_ring import ColumnRing, RingDepthwise, vector_piece_terms
from microfold.kernels.depthwise_conv2d.portable import channel_multiplier, depthwise_types
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.packing.float16_mve import LANES, RUN, half_biases
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import WINDOW_FIELDS, rows_and_taps, window_parameters
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D


@register
class DepthwiseConv2DHalf(Kernel):
    """float16 depthwise convolution of one output at a time. Sums are float32, and are rounded once.

    Weights keep the model's order, [kernel_height][kernel_width][channels]. Biases are float32.
    """

    name = "f16_depthwise_conv2d__c"
    op = DepthwiseConv2D
    fields = declare(
        Field("weights", "float16, [kernel_height][kernel_width][channels]"),
        "biases",
        Field("channel_multiplier", "output channels per input channel"),
        "batch",
        "input_height",
        "input_width",
        Field("channels", "channels of the output"),
        "output_height",
        "output_width",
        *WINDOW_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return product_sum.unsupported_constants(layer, DType.FLOAT16, DType.FLOAT16)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = depthwise_types(layer)
        _, taps = rows_and_taps(x, out, window)
        rows = out.size * window.size[0]
        # The loops visit all taps of a window, but multiply only taps inside the image.
        return Terms(
            call=1, output=out.size, row=rows, visited=rows * window.size[1], product=taps * out.shape[3]
        )

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = depthwise_types(layer)
        array = layer.array(1)
        assert array is not None
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", array),
            "batch": x.shape[0],
            "input_height": x.shape[1],
            "input_width": x.shape[2],
            "channels": out.shape[3],
            "output_height": out.shape[1],
            "output_width": out.shape[2],
            **window_parameters(window),
            "biases": Constant("biases", half_biases(layer, out.shape[3]).astype(np.float32)),
            "channel_multiplier": channel_multiplier(layer),
        }
        function = CFunction("depthwise_conv2d/f16.c.j2", self.name, (("clamp", clamp),), self.fields)
        return KernelCall(function, parameters | limits)


@register
class DepthwiseConv2DHalfMve(RingDepthwise):
    """float16 depthwise convolution of 8 channels at a time, which sums at most `RUN` products in float16.

    It has the layout and the traversal of `RingDepthwise`, with 8 lanes.
    """

    name = "f16_depthwise_conv2d__mve_4x8"
    features = frozenset({"mve_fp"})
    core = "mve"
    dtype = DType.FLOAT16
    lanes = LANES

    def supports(self, layer: LayerContext) -> str | None:
        size = depthwise_types(layer)[3].size
        if size[0] * size[1] > RUN:
            return f"it sums at most {RUN} products in float16; the window has {size[0]} x {size[1]} taps"
        return super().supports(layer)

    def piece_terms(self, ring: ColumnRing) -> Terms:
        return vector_piece_terms(ring)
