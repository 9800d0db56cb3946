"""Hybrid operators: float32 activations, quantised at run time, with integer weights."""

from __future__ import annotations

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize


def is_hybrid(x: Value, weights: Value) -> bool:
    """Return whether an operator with these operands is hybrid."""
    return x.type.dtype is DType.FLOAT32 and weights.type.dtype is DType.INT8


def refuse_unsigned(context: OperatorContext, x: Value, index: int) -> None:
    """Reject uint8 weights (input `index`) with float32 activations.

    Raises:
        Unsupported: the operator has such operands.
    """
    if x.type.dtype is DType.FLOAT32 and context.raw_type(index) is DType.UINT8:
        raise Unsupported(
            "uint8 weights require uint8 activations; they are float32, and LiteRT reads such weights as "
            "if they were int8, without their zero point",
            "convert the model again: current converters write int8 weights",
        )


def quantized(context: OperatorContext, x: Value, *, asymmetric: bool) -> tuple[Value, Value]:
    """Quantise activations at run time: return the integers, and the scales along the first axis."""
    names = [f"{x.name}_quantized", f"{x.name}_steps"]
    values, steps = context.emit(DynamicQuantize(asymmetric), x, names=names)
    return values, steps


def bias_of(context: OperatorContext, index: int, channels: int) -> Value:
    """Return input `index`, or zeros if it is absent."""
    bias = context.optional(index)
    if bias is not None:
        return bias
    return context.add_constant(np.zeros(channels, np.float32), f"{context.name()}_bias")


def real_values(integers: Array, type: TensorType) -> Array:
    """Return the float32 values of constant integers with one scale and zero point 0."""
    quant = type.quant
    if quant is None or quant.axis is not None or quant.zero_point:
        raise Unsupported(f"{type} must have one scale and zero point 0")
    return integers.astype(np.float32) * np.float32(quant.scale)
