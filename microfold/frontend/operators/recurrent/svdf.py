"""Importer of SVDF."""

from __future__ import annotations

import numpy as np
import tflite

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.hybrid import is_hybrid, quantized, real_values
from microfold.frontend.importers import imports
from microfold.frontend.raw import OperatorOptions
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.fully_connected.hybrid_fully_connected import HybridFullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.recurrent.svdf import Svdf
from microfold.ops.reduce.mean import Sum


@imports("SVDF")
def svdf(context: OperatorContext) -> None:
    """Import an SVDF, which updates input 4 in place. The reference activates only float32 results."""
    options = context.required_options("SVDFOptions")
    if is_hybrid(context.input(0), context.input(1)):
        _hybrid(context, options)
        return
    op = Svdf(int(options.Rank()), context.element())
    operands = (context.input(0), context.input(1), context.input(2), context.optional(3), context.input(4))
    result, state = context.emit(op, *operands, names=[context.name(), f"{operands[4].name}_next"])
    context.update_in_place(4, state)
    if result.type.dtype.is_float:
        _finish(context, result, options)
    else:
        context.finish(result)


def _finish(context: OperatorContext, result: Value, options: OperatorOptions) -> None:
    activation = int(options.FusedActivationFunction())
    if activation == tflite.ActivationFunctionType.TANH:
        context.finish(*context.emit(Tanh(context.element()), result))
    else:
        context.finish_activated(result, activation)


def _hybrid(context: OperatorContext, options: OperatorOptions) -> None:
    """Import a hybrid SVDF: integer products with the feature weights, and float32 otherwise."""
    x, feature, time, state = (context.input(index) for index in (0, 1, 2, 4))
    name, rank, element = context.name(), int(options.Rank()), ElementType(DType.FLOAT32)
    if x.type.rank != 2 or feature.type.rank != 2 or time.type.rank != 2 or rank < 1:
        raise Unsupported(f"its rank is {rank}, its operands {x.type}, {feature.type} and {time.type}")
    batch, (filters, steps) = x.type.shape[0], time.type.shape
    if filters % rank or feature.type.shape[0] != filters or state.type.shape != (batch, filters * steps):
        raise Unsupported(
            f"{filters} filters in groups of {rank} require as many feature weights and a state "
            f"[{batch}, {filters * steps}]; they are {feature.type} and {state.type}"
        )
    weights = context.constant(2, "time weights")
    real = real_values(weights, time.type) if time.type.dtype is DType.INT8 else weights
    factors = context.add_constant(real, f"{time.name}_real")
    values, row_steps = quantized(context, x, asymmetric=bool(options.AsymmetricQuantizeInputs()))
    zeros = context.add_constant(np.zeros(filters, np.float32), f"{feature.name}_bias")
    (newest,) = context.emit(
        HybridFullyConnected(), values, feature, zeros, row_steps, names=[f"{name}_newest"]
    )
    (window,) = context.emit(Reshape((batch, filters, 1)), newest, names=[f"{name}_window"])
    if steps > 1:
        (before,) = context.emit(Reshape((batch, filters, steps)), state, names=[f"{name}_before"])
        slicing = StridedSlice((0, 0, 1), (batch, filters, steps - 1), (1, 1, 1))
        (kept,) = context.emit(slicing, before, names=[f"{name}_kept"])
        (window,) = context.emit(Concatenate(2), kept, window, names=[f"{name}_moved"])
    (flat,) = context.emit(Reshape(state.type.shape), window, names=[f"{state.name}_next"])
    context.update_in_place(4, flat)
    (scaled,) = context.emit(Mul(element), window, factors, names=[f"{name}_scaled"])
    groups = Reshape((batch, filters // rank, rank * steps))
    (grouped,) = context.emit(groups, scaled, names=[f"{name}_grouped"])
    (result,) = context.emit(Sum((2,), False, element), grouped, names=[f"{name}_sum"])
    bias = context.optional(3)
    if bias is not None:
        (result,) = context.emit(Add(element), result, bias)
    _finish(context, result, options)
