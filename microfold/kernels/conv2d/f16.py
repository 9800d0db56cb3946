"""float16 convolution in portable C, and for Helium (MVE) with floats.

In C, sums of products are float32, and are rounded once. In vectors, runs of products are summed in float16.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.portable import (
    PATCH_FIELDS,
    SHAPE_FIELDS,
    conv_types,
    filter_matrix,
    is_pointwise,
    patch_parameters,
    shape_parameters,
    unsupported_grouping,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum
from microfold.kernels.packing.float16_mve import LANES, half_biases, half_blocks, run_terms
from microfold.kernels.packing.float32_block import float_clamping
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import rows_and_taps
from microfold.ops.convolution.conv2d import Conv2D

# Number of pixels that vectors compute together.
PIXELS = 4


@register
class Conv2DHalf(Kernel):
    """float16 convolution of one output at a time. Sums of products are float32, and are rounded once.

    Weights keep the model's order, [output_channels][kernel_height][kernel_width][group_inputs]. Biases are
    float32.
    """

    name = "f16_conv2d__c"
    op = Conv2D
    fields = declare(
        Field("weights", "float16, [output_channels][kernel_height][kernel_width][group_inputs]"),
        Field("channels", "biases"),
        *SHAPE_FIELDS,
        Field("group_inputs", "input channels that an output channel reads"),
        "group_outputs",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return product_sum.unsupported_constants(layer, DType.FLOAT16, DType.FLOAT16)

    def terms(self, layer: LayerContext) -> Terms:
        x, weights, out, window = conv_types(layer)
        _, taps = rows_and_taps(x, out, window)
        filters, depth = weights.shape[0], weights.shape[3]
        rows = out.size * window.size[0]
        # The loops visit all taps of a window, but multiply only taps inside the image.
        return Terms(
            call=1,
            output=out.size,
            row=rows,
            visited=rows * window.size[1],
            tap=taps * filters,
            product=taps * filters * depth,
        )

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        x, weights, out, _ = conv_types(layer)
        array = layer.array(1)
        assert array is not None
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", array),
            "channels": Constant("biases", half_biases(layer, out.shape[3]).astype(np.float32)),
            **shape_parameters(layer),
            "group_inputs": weights.shape[3],
            "group_outputs": out.shape[3] * weights.shape[3] // x.shape[3],
        }
        spec = (("clamp", clamp),)
        return KernelCall(CFunction("conv2d/f16.c.j2", self.name, spec, self.fields), parameters | limits)


@register
class Conv2DHalfMve(Kernel):
    """float16 convolution of 4 pixels by 8 channels, which multiplies an input by a vector of 8 channels.

    Patches are gathered unless the layer is pointwise. `weights` is [output_channels / 8][patch][8], padded
    with zeros after the last channel. Runs of products are summed in float16, so that rounding differs from
    the portable kernel.
    """

    name = "f16_conv2d__mve_4x8"
    op = Conv2D
    features = frozenset({"mve_fp"})
    fields = declare(
        Field("weights", "float16, [output_channels / 8][patch][8]"),
        Field("channels", "biases, float16"),
        *PATCH_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_grouping(layer) or product_sum.unsupported_constants(
            layer, DType.FLOAT16, DType.FLOAT16
        )

    def terms(self, layer: LayerContext) -> Terms:
        x, weights, out, window = conv_types(layer)
        depth = weights.size // weights.shape[0]
        blocks = -(-out.shape[3] // LANES)
        pixels = out.size // out.shape[3]
        groups, singles = divmod(pixels, PIXELS)
        found = groups * (Terms(group=1) + blocks * (Terms(block=1) + run_terms(depth, PIXELS, 1)))
        found += singles * blocks * (Terms(single=1) + run_terms(depth, 1, 1))
        if not is_pointwise(window):
            segment = x.shape[3] * (1 if window.dilations[1] > 1 else window.size[1])
            segments = pixels * (depth // segment)
            found += Terms(patch=pixels, segment=segments, copied=segments * -(-segment // LANES))
        return found + Terms(call=1)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        # Each group of 8 channels needs the complete patches, which pointwise layers read in place.
        return window_overlap(x, out, window, PIXELS, reads_first=not is_pointwise(window), across_rows=True)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        clamp_kind, limits = float_clamping(layer)
        pointwise = is_pointwise(window)
        matrix = filter_matrix(layer)
        spec = (
            ("clamp_kind", clamp_kind),
            ("pointwise", pointwise),
            ("dilated", window.dilations[1] > 1),
            ("tail", out.shape[3] % LANES != 0),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", half_blocks(matrix, LANES)),
            "channels": Constant("biases", half_biases(layer, out.shape[3], LANES)),
            "patch": matrix.shape[1],
            "output_channels": out.shape[3],
        }
        traversal, scratch = patch_parameters(layer, PIXELS * matrix.shape[1] * x.dtype.itemsize)
        parameters |= traversal
        return KernelCall(
            CFunction("conv2d/f16_mve.c.j2", self.name, spec, self.fields),
            parameters | dict(limits),
            scratch,
        )
