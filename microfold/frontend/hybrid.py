"""Hybrid operators: float32 activations, which they quantise themselves, with integer weights."""

from __future__ import annotations

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize


def is_hybrid(x: Value, weights: Value) -> bool:
    """Whether an operator on these is a hybrid one."""
    return x.type.dtype is DType.FLOAT32 and weights.type.dtype is DType.INT8


def refuse_unsigned(context: OperatorContext, x: Value, index: int) -> None:
    """Refuse weights of uint8, input `index`, with activations of float32.

    Raises:
        Unsupported: they are.
    """
    if x.type.dtype is DType.FLOAT32 and context.raw_type(index) is DType.UINT8:
        raise Unsupported(
            "weights of uint8 need activations of uint8; they are float32, and LiteRT reads such weights as "
            "if they were int8, without their zero point",
            "convert the model again: converters of today give int8 weights",
        )


def quantized(context: OperatorContext, x: Value, *, asymmetric: bool) -> tuple[Value, Value]:
    """The integers of activations, and their steps along the first axis."""
    names = [f"{x.name}_quantized", f"{x.name}_steps"]
    values, steps = context.emit(DynamicQuantize(asymmetric), x, names=names)
    return values, steps


def bias_of(context: OperatorContext, index: int, channels: int) -> Value:
    """Input `index`, or zeros if it is absent."""
    bias = context.optional(index)
    if bias is not None:
        return bias
    return context.add_constant(np.zeros(channels, np.float32), f"{context.name()}_bias")


def real_values(integers: Array, type: TensorType) -> Array:
    """The float32 values of constant integers with one scale and zero point 0."""
    quant = type.quant
    if quant is None or quant.axis is not None or quant.zero_point:
        raise Unsupported(f"{type} must have one scale and zero point 0")
    return integers.astype(np.float32) * np.float32(quant.scale)
