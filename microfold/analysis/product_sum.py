"""Product sums with constant weights, in one form for all operators."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.analysis.interval import EXACT, INT32, Range, fits, multiply, multiply_wide
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.types import Array, TensorType
from microfold.ops import accumulate
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.image import refuses_layout
from microfold.ops.window import Window

PRODUCT_SUMS = (Conv2D, DepthwiseConv2D, FullyConnected, TransposeConv2D)
# Bound of biases: larger ones have no use, and float64 sums are exact for smaller ones.
LARGEST_BIAS = 1 << 46


class Accumulator(Struct, frozen=True, eq=False):
    """Range of the sums of one layer, per output channel.

    Attributes:
        low, high: smallest and largest whole sum at any position, bias included, int64 [channels].
        partial: bound of the magnitude of all partial sums, int64 [channels]. It holds in whatever order the
            products are added, and whether the zero point is subtracted from elements or folded into the
            bias.
    """

    low: Array
    high: Array
    partial: Array


class ProductSum(Struct, frozen=True, eq=False):
    """Product sum ``bias + sum(weight * (x - zero_point))``, with the positions of its window.

    Output channel ``g * filters + f`` reads input channels ``g * depth`` to ``(g + 1) * depth - 1``.

    Attributes:
        weights: integers minus their zero point, float64 [groups, filters, taps, depth].
        bias: int64 [groups * filters].
        zero_point: zero point of the input.
        positions: for rows and for columns, the distinct sets of taps inside the image at some output
            position,
            bool [kinds, taps of an axis]. None: unknown, any set of taps is possible.
        multipliers: mantissas and shifts, int32 [groups * filters].
        wide: whether sums have 64 bits, see `accumulate.has_wide_sums`.
    """

    weights: Array
    bias: Array
    zero_point: int
    positions: tuple[Array, Array] | None
    multipliers: tuple[Array, Array]
    wide: bool

    def accumulator(self, x: Range) -> Accumulator:
        """Return the range of the sums over inputs in the range `x`."""
        groups, filters, taps, depth = self.weights.shape
        matrix = self.weights.reshape(groups, filters * taps, depth)
        low, high = (
            (bound.astype(np.float64) - self.zero_point).reshape(groups, depth, 1)
            for bound in (x.low, x.high)
        )
        positive, negative = np.maximum(matrix, 0), np.minimum(matrix, 0)
        shape = (groups * filters, taps)
        smallest = (positive @ low + negative @ high).reshape(shape)
        largest = (positive @ high + negative @ low).reshape(shape)
        if self.positions is None:
            smallest, largest = np.minimum(smallest, 0).sum(axis=1), np.maximum(largest, 0).sum(axis=1)
        else:
            rows, columns = self.positions
            split = (-1, rows.shape[1], columns.shape[1])
            # [channels, kinds of rows, kinds of columns]
            smallest, largest = (
                rows.astype(np.float64) @ each.reshape(split) @ columns.T.astype(np.float64)
                for each in (smallest, largest)
            )
            smallest, largest = smallest.min(axis=(1, 2)), largest.max(axis=(1, 2))
        reach = np.maximum(np.abs(x.low), np.abs(x.high)).astype(np.float64) + abs(self.zero_point)
        partial = (np.abs(matrix) @ reach.reshape(groups, depth, 1)).reshape(shape).sum(axis=1)
        return Accumulator(
            self.bias + accumulate.exact_int(smallest),
            self.bias + accumulate.exact_int(largest),
            np.abs(self.bias) + accumulate.exact_int(partial),
        )

    def scaled(self, sums: Accumulator, out: TensorType) -> tuple[Range, Array]:
        """Return these sums requantised but not saturated, and the channels for which the result is valid."""
        values = Range(sums.low, sums.high)
        if self.wide:
            scaled, known = multiply_wide(values, *self.multipliers)
        else:
            scaled, known = multiply(values, *self.multipliers)
            known = known & fits(values, INT32)
        assert out.quant is not None
        zero_point = out.quant.zero_point
        return Range(scaled.low + zero_point, scaled.high + zero_point), known & (sums.partial < EXACT)


def product_sum(node: Node, graph: Graph) -> ProductSum | None:
    """Return the integer product sum that a node computes before its epilogue; None if it is none.

    Weights and bias must be constant.
    """
    op = node.op
    if not isinstance(op, PRODUCT_SUMS) or refuses_layout(op):
        return None
    x, filters, *rest = node.inputs
    bias_value = rest[0] if rest else None
    weights, bias = graph.array(filters), graph.array(bias_value)
    if x is None or filters is None or weights is None or (bias_value is not None and bias is None):
        return None
    if not x.type.dtype.is_integer or x.type.size == 0 or weights.size == 0 or op.out.quant is None:
        return None
    assert x.type.quant is not None and filters.type.quant is not None
    centred = weights.astype(np.float64) - filters.type.quant.zero_points[0]
    matrix = _arrange(op, centred, x.type)
    channels = matrix.shape[0] * matrix.shape[1]
    if bias is None:
        bias = np.zeros(channels, np.int64)
    if bias.max() > LARGEST_BIAS or bias.min() < -LARGEST_BIAS:
        return None
    multipliers = accumulate.output_multipliers(x.type.quant, filters.type.quant, op.out.quant, channels)
    if isinstance(op, TransposeConv2D):
        positions = None
    elif isinstance(op, FullyConnected):
        positions = (np.ones((1, 1), np.bool_), np.ones((1, 1), np.bool_))
    else:
        positions = kinds_of_positions(op.window(filters.type), x.type.shape[1], x.type.shape[2])
    zero_point, wide = x.type.quant.zero_point, has_wide_sums(node)
    return ProductSum(matrix, bias.astype(np.int64), zero_point, positions, multipliers, wide)


def has_wide_sums(node: Node) -> bool:
    """Return `accumulate.has_wide_sums` of a product sum node."""
    bias = node.inputs[2] if isinstance(node.op, PRODUCT_SUMS) and len(node.inputs) > 2 else None
    return accumulate.has_wide_sums(node.operands[0].type, bias.type if bias is not None else None)


def _arrange(
    op: Conv2D | DepthwiseConv2D | FullyConnected | TransposeConv2D, weights: Array, x: TensorType
) -> Array:
    """Return weights as [groups, filters, taps, depth]."""
    if isinstance(op, FullyConnected):
        return weights[np.newaxis, :, np.newaxis, :]
    if isinstance(op, DepthwiseConv2D):
        _, height, width, filters = weights.shape
        channels = x.shape[3]
        taps = weights.reshape(height * width, channels, filters // channels, 1)
        return np.ascontiguousarray(taps.transpose(1, 2, 0, 3))
    filters, height, width, depth = weights.shape
    groups = x.shape[3] // depth
    return weights.reshape(groups, filters // groups, height * width, depth)


def kinds_of_positions(window: Window, height: int, width: int) -> tuple[Array, Array]:
    """Return the sets of taps that are inside the image at some position of the window.

    Rows and columns are independent: each kind of row occurs with each kind of column.

    Returns:
        bool [kinds, taps], for rows and for columns.
    """
    counts = window.output_size(height, width)
    axes = zip(
        (height, width), counts, window.size, window.strides, window.dilations, window.padding, strict=True
    )
    rows, columns = (_kinds_along(*axis) for axis in axes)
    return rows, columns


def _kinds_along(
    length: int, count: int, size: int, stride: int, dilation: int, padding: tuple[int, int]
) -> Array:
    """Return the kinds of positions along one axis, bool [kinds, taps].

    The set of taps changes only at positions where some tap enters or leaves the image.
    """
    taps = np.arange(size) * dilation - padding[0]
    changes = -((np.concatenate([taps, taps - length])) // stride)  # the first position inside, or beyond
    starts = np.unique(np.concatenate([[0], changes[(changes > 0) & (changes < count)]]))
    index = starts[:, np.newaxis] * stride + taps
    return np.unique((index >= 0) & (index < length), axis=0)
