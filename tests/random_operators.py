"""More operators for `tests.random_graphs`: others with scale or layout behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.select import Select
from microfold.ops.elementwise.sub import Sub
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.transpose import Transpose
from microfold.ops.reduce.mean import Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin

if TYPE_CHECKING:
    from tests.random_graphs import Builder

FLOAT = ElementType(DType.FLOAT32)
UNIT = {
    DType.FLOAT32: FLOAT,
    DType.INT8: ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128)),
    DType.INT16: ElementType(DType.INT16, Quant.per_tensor(1 / 32768, 0)),
}
SIGNED_UNIT = UNIT | {DType.INT8: ElementType(DType.INT8, Quant.per_tensor(1 / 128, 0))}


def _axes(b: Builder, x: Value) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.type.rank) if b.number(0, 1))


def _along(b: Builder, x: Value) -> Value:
    """A constant of one axis, of all, of one element: zeros and negative numbers among them."""
    shape = x.type.shape
    axis = len(shape) - 1 if b.number(0, 2) else b.number(0, max(len(shape) - 1, 0))
    kept = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    chosen = (kept, kept, kept[max(axis, 0) :], (), shape)[b.number(0, 4)]
    element = b.element()
    return b.constant(TensorType(element.dtype, chosen, element.quant))


def affine(b: Builder, x: Value) -> None:
    """A product, sum, difference or quotient with a constant, on either side."""
    constant = _along(b, x)
    if b.floating and b.number(0, 5) == 0:
        b.constants[constant] = np.maximum(np.abs(b.constants[constant]), 0.5).astype(np.float32)
        b.emit(Div(FLOAT), x, constant)
        return
    operands = (x, constant) if b.number(0, 2) else (constant, x)
    op = (Mul, Mul, Mul, Sub)[b.number(0, 3)]
    b.emit(op(b.element()), *operands)


def meeting(b: Builder, x: Value) -> None:
    """Two values of the graph, perhaps the same."""
    like = [value for value in b.pool if value.type.element == x.type.element]
    other = b.pick(like)
    assert isinstance(other, Value)
    kind = b.number(0, 3)
    if kind < 2:
        b.emit((Maximum, Minimum)[kind](), x, other)
    else:
        b.emit((Sub, Mul)[kind - 2](b.element()), x, other)


def activation(b: Builder, x: Value) -> None:
    kind, dtype = b.number(0, 5), x.type.dtype
    if dtype not in UNIT:  # a condition
        return
    if kind == 0:
        b.emit(LeakyRelu(float(str(b.pick((-0.5, 0.25, 1.0, 1.5)))), b.element()), x)
    elif kind == 1:
        b.emit(Relu(0.0, float(str(b.pick((6.0, np.inf)))), b.element()), x)
    elif kind == 2 and x.type.rank:
        b.emit(Prelu(b.element()), x, _along(b, x))
    elif kind == 3:
        b.emit(Logistic(UNIT[dtype]), x)
    elif kind == 4:
        b.emit(Tanh(SIGNED_UNIT[dtype]), x)
    else:
        b.emit(Abs(b.element()), x)


def reduction(b: Builder, x: Value) -> None:
    axes, keep = _axes(b, x), bool(b.number(0, 1))
    if b.number(0, 1):
        b.emit(Sum(axes, keep, b.element()), x)
    else:
        b.emit((ReduceMax if b.number(0, 1) else ReduceMin)(axes, keep), x)


def through_float(b: Builder, x: Value) -> None:
    """A way through another type and back, or another scale."""
    if b.floating:
        return
    count = len(b.nodes)
    if b.number(0, 1):
        b.emit(Requantize(b.element()), x)
        return
    b.emit(Dequantize(), x)
    if len(b.nodes) > count:
        # Nothing else reads the float values: where a pass rounds them otherwise, integers could differ.
        value = b.pool.pop()
        if b.number(0, 1):
            b.emit(Tanh(FLOAT), value)
            value = b.pool.pop()
        b.emit(Quantize(b.element()), value)


def choice(b: Builder, x: Value) -> None:
    """The larger one of two integer values, by a comparison."""
    others = [v for v in b.pool if v.type == x.type]
    other = b.pick(others)
    assert isinstance(other, Value)
    if x.type.dtype is not DType.INT8:
        return
    count = len(b.nodes)
    b.emit(Compare("greater"), x, other)
    if len(b.nodes) > count:
        b.emit(Select(), b.pool.pop(), x, other)


def matmul(b: Builder, x: Value) -> None:
    if x.type.rank < 2:
        return
    second = bool(b.number(0, 1))
    depth, units = x.type.shape[-1], b.number(1, 3)
    if b.number(0, 1):
        element = b.element()
        shape = (units, depth) if second else (depth, units)
        other = b.constant(TensorType(element.dtype, shape, element.quant))
        b.emit(BatchMatmul(False, second, b.element()), x, other)
        return
    other = b.pick([v for v in b.pool if v.type.rank >= 2])
    assert isinstance(other, Value)
    b.emit(BatchMatmul(bool(b.number(0, 1)), second, b.element()), x, other)


def gather(b: Builder, x: Value) -> None:
    if not x.type.rank:
        return
    axis = b.number(0, x.type.rank - 1)
    indices = [b.number(0, x.type.shape[axis] - 1) for _ in range(b.number(1, 3))]
    value = Value(b.name(), TensorType(DType.INT32, (len(indices),)))
    b.constants[value] = np.array(indices, np.int32)
    b.emit(Gather(axis), x, value)


def spread(b: Builder, x: Value) -> None:
    b.emit(BroadcastTo(tuple(b.number(2, 3) if n == 1 else n for n in x.type.shape)), x)


def resize(b: Builder, x: Value) -> None:
    if x.type.rank == 4:
        b.emit(ResizeNearestNeighbor((b.number(1, 4), b.number(1, 4)), False, False), x)


def transpose_conv2d(b: Builder, x: Value) -> None:
    if x.type.rank != 4:
        return
    units = b.number(1, 3)
    shape = (units, b.number(1, 2), b.number(1, 3), x.type.shape[3])
    weights, bias = b.weights(shape, 0, units)
    op = TransposeConv2D((b.number(1, 2), 2), (0, b.number(0, 1)), (b.number(2, 5), 4), b.element())
    b.emit(op, x, weights, bias)


def _emitted(b: Builder, op: Op, *inputs: Value | None) -> Value | None:
    """The result, which nothing but the caller reads; None if the type rule refuses."""
    count = len(b.nodes)
    b.emit(op, *inputs)
    return b.pool.pop() if len(b.nodes) > count else None


def _like_weights(b: Builder, *shape: int) -> Value:
    element = b.element()
    return b.constant(TensorType(element.dtype, shape, element.quant))


def parallel(b: Builder, x: Value) -> None:
    """Several layers of one kind that read one value."""
    out = b.element()
    for _ in range(b.number(2, 3)):
        units = b.number(1, 3)
        if x.type.rank == 4:
            weights, bias = b.weights((units, 1, 1, x.type.shape[3]), 0, units)
            b.emit(Conv2D((1, 1), (1, 1), ((0, 0), (0, 0)), out), x, weights, bias)
        elif x.type.rank == 2:
            weights, bias = b.weights((units, x.type.shape[1]), 0, units)
            b.emit(FullyConnected(out), x, weights, bias)
        elif x.type.rank:
            b.emit(BatchMatmul(False, False, out), x, _like_weights(b, x.type.shape[-1], units))


def turned_layer(b: Builder, x: Value) -> None:
    """A layer of a transposed value, and perhaps its result transposed."""
    if x.type.rank < 2:
        return
    *outer, last, before = (*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2)
    order = (*outer, last, before) if b.number(0, 1) else tuple(reversed(range(x.type.rank)))
    turned = _emitted(b, Transpose(order), x)
    if turned is None:
        return
    units = b.number(1, 3)
    if b.number(0, 1):
        rows = _emitted(b, Reshape((1, x.type.size)), turned)
        assert rows is not None
        weights, bias = b.weights((units, x.type.size), 0, units)
        result = _emitted(b, FullyConnected(b.element()), rows, weights, bias)
    else:
        constant = _like_weights(b, turned.type.shape[-1], units)
        result = _emitted(b, BatchMatmul(False, False, b.element()), turned, constant)
    if result is not None:
        rank = result.type.rank
        b.emit(Transpose((*range(rank - 2), rank - 1, rank - 2)), result)


def around_matmul(b: Builder, x: Value) -> None:
    """A sum in front of a matrix product, or some rows taken from its result; two products in a row."""
    if x.type.rank < 2:
        return
    first: Value | None = x
    if b.number(0, 1):
        first = _emitted(b, Add(b.element()), x, _along(b, x))
    constant = _like_weights(b, x.type.shape[-1], b.number(1, 4))
    result = _emitted(b, BatchMatmul(False, False, b.element()), first, constant) if first else None
    if result is None:
        return
    if b.number(0, 1):
        constant = _like_weights(b, result.type.shape[-1], b.number(1, 4))
        b.emit(BatchMatmul(False, False, b.element()), result, constant)
    else:
        gather(b, result)


STEPS: Mapping[str, Callable[[Builder, Value], None]] = {
    "affine": affine,
    "meeting": meeting,
    "activation": activation,
    "reduction": reduction,
    "through_float": through_float,
    "choice": choice,
    "matmul": matmul,
    "gather": gather,
    "spread": spread,
    "resize": resize,
    "transpose_conv2d": transpose_conv2d,
    "parallel": parallel,
    "turned_layer": turned_layer,
    "around_matmul": around_matmul,
}
