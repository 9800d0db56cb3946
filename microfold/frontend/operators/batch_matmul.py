"""BATCH_MATMUL."""

from __future__ import annotations

import math

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported, imports
from microfold.frontend.hybrid import is_hybrid, quantized
from microfold.ir.node import Value
from microfold.ir.types import ElementType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.fully_connected.hybrid_fully_connected import HybridFullyConnected
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.transpose import Transpose


@imports("BATCH_MATMUL")
def batch_matmul(context: OperatorContext) -> None:
    options = context.required_options("BatchMatMulOptions")
    first, second = context.input(0), context.input(1)
    if is_hybrid(first, second):
        asymmetric = bool(options.AsymmetricQuantizeInputs())
        _hybrid(context, bool(options.AdjX()), bool(options.AdjY()), asymmetric=asymmetric)
        return
    op = BatchMatmul(bool(options.AdjX()), bool(options.AdjY()), context.element())
    context.finish(*context.emit(op, first, second))


def _hybrid(context: OperatorContext, adj_x: bool, adj_y: bool, *, asymmetric: bool) -> None:
    """Rows of float32, each quantised by itself, times one matrix of int8: a fully connected layer."""
    first, second = context.input(0), context.input(1)
    matrix = context.constant(1, "weights")
    quant = second.type.quant
    if matrix.ndim < 2 or math.prod(matrix.shape[:-2]) != 1:
        raise Unsupported(f"its int8 operand must be one matrix; it is {second.type}")
    if first.type.rank < 2:
        raise Unsupported(f"its float32 operand must have rows; it is {first.type}")
    if quant is None or quant.axis is not None:
        raise Unsupported("its int8 operand must have one scale", "quantise it per tensor")
    rows = _swapped(context, first) if adj_x else first
    weights = matrix.reshape(matrix.shape[-2:])
    # [units, K], as a fully connected layer has them.
    weights = np.ascontiguousarray(weights if adj_y else weights.T)
    units, depth = weights.shape
    if rows.type.shape[-1] != depth:
        raise Unsupported(f"the inner dimensions must agree; they are {rows.type.shape[-1]} and {depth}")
    (flat,) = context.emit(Reshape((rows.type.size // depth, depth)), rows, names=[f"{first.name}_rows"])
    values, steps = quantized(context, flat, asymmetric=asymmetric)
    turned = context.add_constant(weights, f"{second.name}_units", ElementType(second.type.dtype, quant))
    zeros = context.add_constant(np.zeros(units, np.float32), f"{context.name()}_bias")
    (product,) = context.emit(HybridFullyConnected(), values, turned, zeros, steps)
    leading = np.broadcast_shapes(rows.type.shape[:-2], second.type.shape[:-2])
    context.finish(*context.emit(Reshape((*leading, rows.type.shape[-2], units)), product))


def _swapped(context: OperatorContext, x: Value) -> Value:
    """The value with its last two axes exchanged."""
    rank = x.type.rank
    (result,) = context.emit(
        Transpose((*range(rank - 2), rank - 1, rank - 2)), x, names=[f"{x.name}_transposed"]
    )
    return result
