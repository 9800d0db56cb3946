"""Hybrid product sums: integer sums as in int16 layers, which are scaled to floats at the end.

The sums are written to the memory of the later floats. Each row of the first axis is then scaled by its own
step, with the factors in the order of the reference, see `ops.hybrid`. The operators' type rules ensure that
sums fit 32 bits.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import Constant, Parameter
from microfold.kernels.fields import Field, Fields, declare
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import int4, product_sum
from microfold.kernels.packing.float32_block import float_clamping
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.finish import OutputStage
from microfold.ops import hybrid
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D, scales_first
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D

# Fields of functions that scale sums to floats.
SCALE_FIELDS = declare(
    Field("scale", "scale of all weights"),
    Field("scales", "scale of the weights of each channel"),
    "biases",
    Field("images", "images in the batch"),
)


# Form of kernels that do not requantise.
SUMS = "sums"


def unsupported_hybrid(layer: LayerContext) -> str | None:
    """Return the reason if a layer lacks constant weights and bias, or has an epilogue other than clips."""
    return product_sum.unsupported_constants(layer, DType.INT16, DType.INT8)


def unsupported_int4(layer: LayerContext) -> str | None:
    """Return the reason if the weights do not fit four bits."""
    weights = layer.array(1)
    assert weights is not None
    return int4.unsupported(weights)


def dynamic_finish(layer: LayerContext, multiple: int = 1) -> OutputStage:
    """Return the scaling of sums by the step of their row and by the scales of the weights.

    Args:
        multiple: factor by which the kernel's sums are larger than the real ones; a power of two, so that
            dividing the scales by it is exact.
    """
    x, weights = (value.type for value in layer.node.operands[:2])
    biases = layer.array(2)
    assert biases is not None
    clamp_kind, limits = float_clamping(layer)
    parameters: dict[str, Parameter] = {"biases": Constant("biases", biases), **limits}
    scales = hybrid.weight_scales(weights, _channel_axis(layer)) / np.float32(multiple)
    if isinstance(layer.node.op, HybridConv2D) and scales_first(x, weights):
        order = "scales_first"
    else:
        order = "common" if hybrid.has_common_scale(weights) else "product"
    if order == "common":
        parameters["scale"] = float(scales[0])
    else:
        parameters["scales"] = Constant("scales", np.ascontiguousarray(scales))
    core = "mve_" if layer.target.has("mve_fp") else "pairs_" if layer.target.has("late_loads") else ""
    return OutputStage((("order", order), ("clamp_kind", clamp_kind), ("core", core)), parameters)


def scale_cost(layer: LayerContext) -> float:
    """Estimate the instructions that scale all sums."""
    size = layer.node.output.type.size
    if layer.target.has("mve_fp"):
        return 4.0 * size
    if layer.target.has("fpu"):
        return 14.0 * size
    # A product, a sum and a conversion in software, counted under QEMU in layers of dscnn_bn_aeq_dynwi8.
    return (122.0 if layer.target.has("thumb2") else 340.0) * size


def with_scale_fields(fields: Fields) -> Fields:
    """Return the fields of an integer kernel, with the fields of `OutputStage` for the channels' records."""
    names = {field.name for field in (*SCALE_FIELDS, *output_range.LIMIT_FIELDS)} | {"channels"}
    kept = tuple(field for field in fields if field.name not in names)
    return (*kept, *SCALE_FIELDS, *output_range.LIMIT_FIELDS)


def _channel_axis(layer: LayerContext) -> int:
    return 3 if isinstance(layer.node.op, HybridDepthwiseConv2D) else 0
