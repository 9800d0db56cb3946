"""Conversion of the legacy uint8 quantisation to int8.

Subtracting 128 from integers and zero points keeps the real values. Operators that LiteRT computes with equal
results for both types compute int8 here. A requantize node with the same scale converts their results back to
uint8, for operators that support only uint8 and for outputs. Operators that move or compare values accept
uint8, but use int8 if their input was computed as int8. Weights have their own zero points; they become int16
values without a zero point.
"""

from __future__ import annotations

import numpy as np

from microfold.frontend.schema import operator_names
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType

SHIFT = 128
# Operators of the file format that compute legacy uint8 as int8.
SHIFTED = operator_names(
    *("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "PRELU", "LEAKY_RELU", "HARD_SWISH", "GELU"),
    *("RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX", "MAX_POOL_2D"),
    *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"),
    *("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"),
    *("FULLY_CONNECTED", "L2_NORMALIZATION"),
)
# Operators that use int8 if an input was computed as int8. Their results are equal for both types.
MOVING = operator_names(
    *("CONCATENATION", "PACK", "UNPACK", "SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE", "GATHER"),
    *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "PAD", "PADV2", "MIRROR_PAD", "TILE"),
    *("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
    *("RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "ARG_MAX", "ARG_MIN", "DEQUANTIZE"),
    "CUSTOM TFLite_Detection_PostProcess",
)


def is_legacy(type: ElementType | TensorType) -> bool:
    """Return whether the type is quantised uint8."""
    return type.dtype is DType.UINT8 and type.quant is not None


def signed(element: ElementType) -> ElementType:
    """Return the int8 type that is equivalent to a legacy uint8 type."""
    assert element.quant is not None
    points = tuple(point - SHIFT for point in element.quant.zero_points)
    return ElementType(DType.INT8, Quant(element.quant.scales, points, element.quant.axis))


def signed_array(array: Array) -> Array:
    """Return the int8 elements that are equivalent to a legacy uint8 constant."""
    return (array.astype(np.int16) - SHIFT).astype(np.int8)
