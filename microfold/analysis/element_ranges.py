"""Range analysis of every single element: slower than `microfold.analysis.ranges`, and independent of it.

For a monotone operator, the reference is evaluated at both ends of the operands' ranges. Product sums are
evaluated position by position, with positive weights at one end and negative weights at the other. The
checker
of pruning proofs uses this analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op, Pattern
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops import accumulate
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add, add_parameters
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.image import refuses_layout
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.concatenate_view import ConcatenateView
from microfold.ops.movement.copy import Copy
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.slice_view import SliceView
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin

# Operators that only move elements of their operands (or insert the fill).
MOVEMENTS = (
    Concatenate,
    ConcatenateView,
    Pad,
    Reshape,
    ResizeNearestNeighbor,
    SliceView,
    StridedSlice,
    Transpose,
)
# Operators that are monotone in each operand.
_MONOTONE = (*MOVEMENTS, AveragePool2D, Clip, Copy, MaxPool2D, Maximum, Minimum, ReduceMax, ReduceMin)
_QUANTIZED = (DType.INT8, DType.INT16)


class Ends(NamedTuple):
    """Smallest and largest value of each element, with the value's own type and shape."""

    low: Array
    high: Array


def element_ranges(graph: Graph) -> dict[Value, Ends]:
    """Return the ranges of all integer values of a graph."""
    found: dict[Value, Ends] = {value: Ends(array, array) for value, array in graph.constants.items()}
    for value in (*graph.inputs, *(state.value for state in graph.state)):
        if value.type.dtype.is_integer:
            found[value] = everything(value.type)
    for node in graph.nodes:
        types = node.op.infer_all([v.type if v is not None else None for v in node.inputs])
        ends = _first_output(node, types[0], found)
        running = types[0]
        for step in node.epilogue:
            after = step.op.infer_all([running, *(v.type for v in step.operands)])[0]
            is_plain = ends is not None and not step.operands and after.dtype.is_integer
            ends = _elementwise(step.op, running, ends, after) if is_plain and ends is not None else None
            running = after
        for value in node.outputs:
            if value.type.dtype.is_integer:
                first = ends if value is node.outputs[0] else None
                found[value] = first if first is not None else everything(value.type)
    return found


def everything(t: TensorType) -> Ends:
    """Return the range of the element type for all elements."""
    low, high = (np.full(t.shape, bound, t.dtype.numpy) for bound in t.dtype.range)
    return Ends(low, high)


def _first_output(node: Node, out: TensorType, found: dict[Value, Ends]) -> Ends | None:
    op = node.op
    present = [v for v in node.inputs if v is not None]
    operands = [found[v] for v in present if v in found]
    if not out.dtype.is_integer or out.size == 0 or len(operands) < len(present) or not operands:
        return None
    types = [v.type for v in present]
    if isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected | TransposeConv2D):
        known = all(ends.low is ends.high for ends in operands[1:])
        known = known and not refuses_layout(op)
        return _product_sum(op, operands, types) if known and out.dtype in _QUANTIZED else None
    if isinstance(op, _MONOTONE):
        return _at_ends(op, types, operands)
    if op.pattern is Pattern.ELEMENTWISE and len(operands) == 1:
        return _elementwise(op, types[0], operands[0], out)
    if out.dtype in _QUANTIZED and isinstance(op, Add | Sub | Mul | Mean | Sum):
        return _scaled(op, types, operands, out)
    return None


def _evaluate(op: Op, types: Sequence[TensorType], arrays: Sequence[Array]) -> Array:
    (result,) = op.evaluate([Tensor(t, array) for t, array in zip(types, arrays, strict=True)])
    return result.data


def _at_ends(op: Op, types: Sequence[TensorType], operands: Sequence[Ends]) -> Ends:
    low = _evaluate(op, types, [ends.low for ends in operands])
    return Ends(low, _evaluate(op, types, [ends.high for ends in operands]))


def _scaled(
    op: Add | Sub | Mul | Mean | Sum, types: Sequence[TensorType], operands: Sequence[Ends], out: TensorType
) -> Ends | None:
    """Return the range of requantised arithmetic; the full range if an intermediate may not fit int32."""
    quants = [t.quant for t in types if t.quant is not None]
    if len(quants) < len(types):
        return None
    centred = [
        tuple(end.astype(np.int64) - q.zero_point for end in x) for x, q in zip(operands, quants, strict=True)
    ]
    if isinstance(op, Mean | Sum):
        corners = [_evaluate(op, types, [end]) for end in operands[0]]
        totals = [end.sum(axis=op.axes, keepdims=op.keep_dims) for end in centred[0]]
        raw = [end.astype(np.int64).sum(axis=op.axes, keepdims=op.keep_dims) for end in operands[0]]
        known = _in_int32(raw, 0) & _in_int32(totals, op.multiplier(quants[0], op.count(types[0])).shift)
    else:
        corners = [_evaluate(op, types, (x, y)) for x in operands[0] for y in operands[1]]
        if isinstance(op, Mul):
            products = [x * y for x in centred[0] for y in centred[1]]
            known = _in_int32(products, op.multiplier(quants[0], quants[1]).shift)
        else:
            parameters = add_parameters(quants[0], quants[1], op.out)
            # Both operands are at least halved. An output that is scaled up (shift > 0) is not analysed.
            known = np.asarray(parameters.output.shift <= 0)
            for ends in centred:
                known = known & _in_int32(ends, parameters.left_shift)
    full, low, high = everything(out), np.min(corners, axis=0), np.max(corners, axis=0)
    return Ends(np.where(known, low, full.low), np.where(known, high, full.high))


def _in_int32(values: Sequence[Array], left: int) -> Array:
    """Return which elements fit int32 in all arrays after a left shift."""
    limit = (1 << 31) >> max(left, 0)
    return np.all([(x >= -limit) & (x < limit) for x in values], axis=0)


def _elementwise(op: Op, given: TensorType, x: Ends, out: TensorType) -> Ends | None:
    if isinstance(op, _MONOTONE):
        return _at_ends(op, [given], [x])
    if given.dtype.itemsize > 2 or not out.dtype.is_integer:
        return None
    pairs = np.stack([x.low.reshape(-1), x.high.reshape(-1)], axis=1)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    bounds: list[tuple[int, int]] = []
    for low, high in distinct.tolist():
        inputs = np.arange(low, high + 1).astype(given.dtype.numpy)
        with np.errstate(all="ignore"):
            results = _evaluate(op, [given.with_shape(inputs.shape)], [inputs])
        bounds.append((int(results.min()), int(results.max())))
    table = np.array(bounds, out.dtype.numpy)[which.reshape(-1)]
    return Ends(table[:, 0].reshape(out.shape), table[:, 1].reshape(out.shape))


ProductSumOp = Conv2D | DepthwiseConv2D | FullyConnected | TransposeConv2D


def element_sums(op: ProductSumOp, operands: Sequence[Ends], types: Sequence[TensorType]) -> Ends:
    """Return the smallest and largest whole sum of each element of a product sum, with bias, int64.

    Args:
        operands: ends of the input and of the constants: weights and, if present, bias.
    """
    x, filters = types[0].quant, types[1].quant
    assert x is not None and filters is not None
    weights = operands[1].low.astype(np.float64) - filters.zero_points[0]
    low, high = (end.astype(np.float64) - x.zero_point for end in operands[0])
    bias = operands[2].low.astype(np.int64) if len(operands) > 2 else 0
    positive, negative = np.maximum(weights, 0), np.minimum(weights, 0)
    smallest, largest = (
        np.rint(_sum(op, a, positive, types) + _sum(op, b, negative, types)).astype(np.int64) + bias
        for a, b in ((low, high), (high, low))
    )
    return Ends(smallest, largest)


def element_reach(op: ProductSumOp, operands: Sequence[Ends], types: Sequence[TensorType]) -> Array:
    """Return a bound of the magnitude of all partial sums in any order of summation, int64."""
    x, filters = types[0].quant, types[1].quant
    assert x is not None and filters is not None
    magnitude = np.maximum(*(np.abs(end.astype(np.float64)) for end in operands[0])) + abs(x.zero_point)
    weights = np.abs(operands[1].low.astype(np.float64) - filters.zero_points[0])
    bias = np.abs(operands[2].low.astype(np.int64)) if len(operands) > 2 else 0
    return np.rint(_sum(op, magnitude, weights, types)).astype(np.int64) + bias


def _product_sum(op: ProductSumOp, operands: Sequence[Ends], types: Sequence[TensorType]) -> Ends | None:
    x, filters = types[0].quant, types[1].quant
    assert x is not None and filters is not None and op.out.quant is not None
    sums = element_sums(op, operands, types)
    channels = sums[0].shape[-1]
    mantissas, shifts = accumulate.output_multipliers(x, filters, op.out.quant, channels)
    wide = accumulate.has_wide_sums(types[0], types[2] if len(types) > 2 else None)
    # Beyond this limit, the reference's arithmetic wraps around, so nothing is known.
    limit = 1 << (46 if wide else 31)
    room = limit >> np.maximum(shifts.astype(np.int64), 0)
    safe = (sums[0] >= -room) & (sums[1] < room)
    if wide:
        safe &= (shifts <= 14) & (shifts >= -45)
        shifts = np.clip(shifts, -45, 14)
    low, high = (
        accumulate.requantize(np.where(safe, end, 0), mantissas, shifts, op.out, wide=wide).astype(np.int64)
        for end in sums
    )
    lowest, highest = op.out.dtype.range
    return Ends(
        np.where(safe, low, lowest).astype(op.out.dtype.numpy),
        np.where(safe, high, highest).astype(op.out.dtype.numpy),
    )


def _sum(
    op: ProductSumOp,
    image: Array,
    weights: Array,
    types: Sequence[TensorType],
) -> Array:
    """Return the operator's sum of products in float64, without bias; the image is padded with zeros."""
    if isinstance(op, FullyConnected):
        return image @ weights.T
    if isinstance(op, TransposeConv2D):
        return _transposed_sum(op, image, weights)
    patches = op.window(types[1]).patches(image, fill=0)
    batch, rows, columns, channels = patches.shape[:4]
    if isinstance(op, DepthwiseConv2D):
        split = weights[0].reshape(*weights.shape[1:3], channels, -1)
        return np.einsum("nyxchw,hwcm->nyxcm", patches, split, optimize=True).reshape(
            batch, rows, columns, -1
        )
    filters, height, width, depth = weights.shape
    groups = channels // depth
    split = weights.reshape(groups, filters // groups, height, width, depth)
    parts = patches.reshape(batch, rows, columns, groups, depth, height, width)
    return np.einsum("nyxgchw,gohwc->nyxgo", parts, split, optimize=True).reshape(
        batch, rows, columns, filters
    )


def _transposed_sum(op: TransposeConv2D, image: Array, weights: Array) -> Array:
    batch, rows, columns, _ = image.shape
    filters, height, width, _ = weights.shape
    total = np.zeros((batch, *op.size, filters))
    products = np.einsum("nyxc,ohwc->nyxhwo", image, weights, optimize=True)
    for y, x, ky, kx in np.ndindex(rows, columns, height, width):
        row, column = y * op.strides[0] + ky - op.offset[0], x * op.strides[1] + kx - op.offset[1]
        if 0 <= row < op.size[0] and 0 <= column < op.size[1]:
            total[:, row, column] += products[:, y, x, ky, kx]
    return total
