"""Hybrid product sums: integers that are summed up as those of int16 layers are, and end as floats.

The sums are written where the floats will be; then each row of the first axis gets its step, in the order of
the reference's factors, see `ops.hybrid`. Sums fit 32 bits, as the type rules see to.
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
from microfold.kernels.requantize.finish import Finish
from microfold.ops import hybrid
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D, scales_first
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D

# What a function has that turns sums into floats.
SCALE_FIELDS = declare(
    Field("scale", "of all weights"),
    Field("scales", "of the weights of each channel"),
    "biases",
    Field("images", "in the batch"),
)


# The form of what is not requantised.
SUMS = "sums"


def unsupported_hybrid(layer: LayerContext) -> str | None:
    """What all kernels of hybrid product sums need: constant weights and bias, clips only."""
    return product_sum.unsupported_constants(layer, DType.INT16, DType.INT8)


def unsupported_int4(layer: LayerContext) -> str | None:
    """The reason if the weights do not fit four bits."""
    weights = layer.array(1)
    assert weights is not None
    return int4.unsupported(weights)


def dynamic_finish(layer: LayerContext, multiple: int = 1) -> Finish:
    """Scaling of sums by the step of their row and the scales of the weights.

    Args:
        multiple: how many times the real sums a kernel computes; a power of two, which scales take exactly.
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
    return Finish((("order", order), ("clamp_kind", clamp_kind), ("core", core)), parameters)


def scale_cost(layer: LayerContext) -> float:
    """Estimated instructions that scale all sums."""
    size = layer.node.output.type.size
    if layer.target.has("mve_fp"):
        return 4.0 * size
    if layer.target.has("fpu"):
        return 14.0 * size
    # In software, a product, a sum and a conversion: counted under QEMU, in layers of dscnn_bn_aeq_dynwi8.
    return (122.0 if layer.target.has("thumb2") else 340.0) * size


def with_scale_fields(fields: Fields) -> Fields:
    """The fields of a kernel of integers, with those of `Finish` in the place of the channels' records."""
    names = {field.name for field in (*SCALE_FIELDS, *output_range.LIMIT_FIELDS)} | {"channels"}
    kept = tuple(field for field in fields if field.name not in names)
    return (*kept, *SCALE_FIELDS, *output_range.LIMIT_FIELDS)


def _channel_axis(layer: LayerContext) -> int:
    return 3 if isinstance(layer.node.op, HybridDepthwiseConv2D) else 0
