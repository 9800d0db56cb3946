"""The legacy uint8 quantisation, as int8: numbers and zero points are 128 less, and mean the same.

Operators whose arithmetic LiteRT has for both types, with equal results, compute int8. What they give is
there as uint8, too, behind a requantize that keeps the scale: for operators that have uint8 only, and for
outputs. Operators that move or compare values take uint8 as it is, but int8 where that has been computed.
Weights have zero points of their own, and become int16 without.
"""

from __future__ import annotations

import numpy as np

from microfold.frontend.schema import operator_names
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType

SHIFT = 128
# Operators of the file format that compute uint8 so.
SHIFTED = operator_names(
    *("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "PRELU", "LEAKY_RELU", "HARD_SWISH", "GELU"),
    *("RELU", "RELU6", "RELU_N1_TO_1", "LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX", "MAX_POOL_2D"),
    *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"),
    *("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"),
    *("FULLY_CONNECTED", "L2_NORMALIZATION"),
)
# Operators that compute it so where what they read has been: their results are the same either way.
MOVING = operator_names(
    *("CONCATENATION", "PACK", "UNPACK", "SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE", "GATHER"),
    *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "PAD", "PADV2", "MIRROR_PAD", "TILE"),
    *("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
    *("RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "ARG_MAX", "ARG_MIN", "DEQUANTIZE"),
    "CUSTOM TFLite_Detection_PostProcess",
)


def is_legacy(type: ElementType | TensorType) -> bool:
    """Whether it is uint8 that stands for real numbers."""
    return type.dtype is DType.UINT8 and type.quant is not None


def signed(element: ElementType) -> ElementType:
    """What a legacy element is as int8."""
    assert element.quant is not None
    points = tuple(point - SHIFT for point in element.quant.zero_points)
    return ElementType(DType.INT8, Quant(element.quant.scales, points, element.quant.axis))


def signed_array(array: Array) -> Array:
    """The same numbers of a constant."""
    return (array.astype(np.int16) - SHIFT).astype(np.int8)
