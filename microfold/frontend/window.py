"""Shared import functions of operators with windows or weights: padding, strides, compatible types."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType, Quant
from microfold.ops.window import Padding, Pair, Window, same_padding


def check_weights(x: Value, weights: Value) -> None:
    """Raise `Unsupported` if the types of activations and weights are not compatible."""
    given = f"activations are {x.type.dtype.value}, weights {weights.type.dtype.value}"
    if DType.UINT8 in (x.type.dtype, weights.type.dtype):
        raise Unsupported(
            f"{given}: the legacy uint8 quantisation is not supported",
            "convert the model again, with int8 as the target type",
        )


def check_legacy_weights(context: OperatorContext) -> None:
    """Require uint8 weights (input 1) if another operand is uint8, because LiteRT reads them as uint8.

    Raises:
        Unsupported: the weights have another type.
    """
    used = [context.scope.tensors[tensor] for tensor in context.raw.inputs if tensor >= 0]
    weights = context.scope.tensors[context.raw.inputs[1]]
    if weights.dtype is not DType.UINT8 and any(tensor.dtype is DType.UINT8 for tensor in used):
        raise Unsupported(
            f"weights for uint8 activations must be uint8; they are {weights.type_name}",
            "convert the model again, with int8 as the target type",
        )


def without_zero_point(context: OperatorContext, x: Value, weights: Value) -> Value:
    """Return legacy weights (input 1) as int16 without a zero point, and other weights unchanged.

    For legacy weights, LiteRT multiplies the scales of input and weights in float32. The new scale is chosen
    so that the product in double has the same value.
    """
    raw, quant, array = context.scope.tensors[context.raw.inputs[1]], weights.type.quant, context.known(1)
    check_legacy_weights(context)
    if raw.dtype is not DType.UINT8 or quant is None or array is None or x.type.quant is None:
        return weights
    if quant.axis is not None:
        raise Unsupported(f"legacy weights must have one scale; they have {len(quant.scales)}")
    product = float(np.float32(x.type.quant.scale) * np.float32(quant.scale))
    element = ElementType(DType.INT16, Quant((product / x.type.quant.scale,), (0,)))
    centred = array.astype(np.int16) - np.int16(quant.zero_point)
    return context.add_constant(centred, f"{raw.name}_centred", element)


def padding_of(options: Any, x: Value, size: Pair, strides: Pair, dilations: Pair) -> Padding:
    """Return the rows and columns of padding for SAME or VALID."""
    if options.Padding() == tflite.Padding.VALID:
        return ((0, 0), (0, 0))
    extent = Window(size, strides, dilations, ((0, 0), (0, 0))).extent
    vertical = same_padding(x.type.shape[1], extent[0], strides[0])
    return (vertical, same_padding(x.type.shape[2], extent[1], strides[1]))


def image(context: OperatorContext) -> Value:
    """Return the first input, which must be an image."""
    x = context.input(0)
    if x.type.rank != 4:
        raise Unsupported(f"its input must have rank 4 (NHWC); it is {x.type}")
    return x


def positive(what: str, height: int, width: int) -> Pair:
    """Return the pair after checking that both numbers are positive."""
    if min(height, width) < 1:
        raise Unsupported(f"{what} must be positive; they are {height} and {width}")
    return height, width


def strides_of(options: Any) -> Pair:
    """Return the vertical and the horizontal stride."""
    return positive("strides", int(options.StrideH()), int(options.StrideW()))


def with_bias_type(
    context: OperatorContext, bias: Value | None, x: Value, channels: int, options: Any
) -> Value | None:
    """Return the bias. If it is absent and the options declare an int32 bias, return zeros.

    The type of the bias decides the width of accumulators for int16 activations, see
    `accumulate.has_wide_sums`.
    """
    if bias is not None or x.type.dtype is not DType.INT16:
        return bias
    if options.QuantizedBiasType() != tflite.TensorType.INT32:
        return None
    return context.add_constant(np.zeros(channels, np.int32), f"{context.name()}_bias")
