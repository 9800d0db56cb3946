"""Importer of BATCH_MATMUL."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.hybrid import is_hybrid, quantized
from microfold.frontend.importers import imports
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.unary_rule import QUANTIZED
from microfold.ops.fully_connected.fully_connected import FullyConnected
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
    adj_x, adj_y = bool(options.AdjX()), bool(options.AdjY())
    if first.type.dtype in QUANTIZED and second.type.quant is not None and second.type.quant.axis is not None:
        _by_columns(context, adj_x, adj_y)
        return
    if first.type.dtype is DType.INT16 and second.type.dtype is DType.INT8:
        second = _widened(context, second)
    context.finish(*context.emit(BatchMatmul(adj_x, adj_y, context.element()), first, second))


def _widened(context: OperatorContext, value: Value) -> Value:
    """Return an int8 value as int16, with the same integers."""
    element = ElementType(DType.INT16, value.type.quant)
    array = context.known(1)
    if array is not None:
        return context.add_constant(array.astype(np.int16), f"{value.name}_wide", element)
    (result,) = context.emit(Requantize(element), value, names=[f"{value.name}_wide"])
    return result


def _by_columns(context: OperatorContext, adj_x: bool, adj_y: bool) -> None:
    """Import a product with a constant matrix that has one scale per column, as a fully connected layer."""
    rows, turned = _layer_operands(context, adj_x, adj_y)
    second = context.input(1).type
    assert second.quant is not None
    columns = second.rank - (2 if adj_y else 1)
    if second.quant.axis != columns or turned.type.dtype is not DType.INT8:
        raise Unsupported(
            f"its second operand must be int8 with scales along its columns, axis {columns}; it is {second}",
            "quantise it per tensor",
        )
    (product,) = context.emit(FullyConnected(context.element()), _flat(context, rows), turned)
    _finish_layer(context, product, rows)


def _hybrid(context: OperatorContext, adj_x: bool, adj_y: bool, *, asymmetric: bool) -> None:
    """Import a product of float32 rows, quantised separately at run time, and a constant int8 matrix."""
    second = context.input(1)
    if second.type.quant is None or second.type.quant.axis is not None:
        raise Unsupported("its int8 operand must have one scale", "quantise it per tensor")
    rows, turned = _layer_operands(context, adj_x, adj_y)
    values, steps = quantized(context, _flat(context, rows), asymmetric=asymmetric)
    zeros = context.add_constant(np.zeros(turned.type.shape[0], np.float32), f"{context.name()}_bias")
    (product,) = context.emit(HybridFullyConnected(), values, turned, zeros, steps)
    _finish_layer(context, product, rows)


def _layer_operands(context: OperatorContext, adj_x: bool, adj_y: bool) -> tuple[Value, Value]:
    """Return the first operand in rows, and the constant second one as weights of a fully connected layer."""
    first, second = context.input(0), context.input(1)
    matrix = context.constant(1, "weights")
    if matrix.ndim < 2 or math.prod(matrix.shape[:-2]) != 1:
        raise Unsupported(f"its int8 operand must be one matrix; it is {second.type}")
    if first.type.rank < 2:
        raise Unsupported(f"its first operand must have rows; it is {first.type}")
    rows = _swapped(context, first) if adj_x else first
    weights = matrix.reshape(matrix.shape[-2:])
    weights = np.ascontiguousarray(weights if adj_y else weights.T)
    depth = weights.shape[1]
    if rows.type.shape[-1] != depth:
        raise Unsupported(f"the inner dimensions must agree; they are {rows.type.shape[-1]} and {depth}")
    quant = second.type.quant
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=0)
    return rows, context.add_constant(weights, f"{second.name}_units", ElementType(second.type.dtype, quant))


def _flat(context: OperatorContext, rows: Value) -> Value:
    depth = rows.type.shape[-1]
    name = f"{context.input(0).name}_rows"
    (flat,) = context.emit(Reshape((rows.type.size // depth, depth)), rows, names=[name])
    return flat


def _finish_layer(context: OperatorContext, product: Value, rows: Value) -> None:
    leading = np.broadcast_shapes(rows.type.shape[:-2], context.input(1).type.shape[:-2])
    shape = (*leading, rows.type.shape[-2], product.type.shape[-1])
    context.finish(*context.emit(Reshape(shape), product))


def _swapped(context: OperatorContext, x: Value) -> Value:
    rank = x.type.rank
    (result,) = context.emit(
        Transpose((*range(rank - 2), rank - 1, rank - 2)), x, names=[f"{x.name}_transposed"]
    )
    return result
