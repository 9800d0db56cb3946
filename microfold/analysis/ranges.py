"""Exact interval analysis of integer values, with one range per channel.

Inputs of the model can have any value of their type. All other ranges follow by the reference's own
arithmetic:
product sums with constant weights at every kind of border position, exact requantisation, and tables of
elementwise operators. A result without a rule has the full range of its type. All results do if the nodes
have
more channels than `limits.TRACKED_CHANNELS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

import numpy as np
from msgspec import Struct

from microfold.analysis.interval import (
    INT32,
    Range,
    array_range,
    channel_count,
    fits,
    full_range,
    is_tracked,
    multiply,
    saturate,
    to_element,
    uniform,
)
from microfold.analysis.product_sum import PRODUCT_SUMS, Accumulator, ProductSum, product_sum
from microfold.ir import limits
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op, Pattern
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add, add_parameters
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
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

Fact = TypeVar("Fact")

TABLE_BITS = 16  # elementwise operators on wider types are not tabulated


class Ranges(Struct, frozen=True, eq=False):
    """Proved facts about a graph.

    Attributes:
        values: range of every integer value that is not empty.
        accumulators: sums of every node that is a product sum or a sum over integers.
        product_sums: integer product sums with constant weights.
        unsaturated: range of the outputs of product sums before saturation and clipping, if known.
    """

    values: Mapping[Value, Range]
    accumulators: Mapping[Node, Accumulator]
    product_sums: Mapping[Node, ProductSum]
    unsaturated: Mapping[Node, Range]

    def moved(self, node: Node, other: Node, values: Mapping[Value, Range] | None = None) -> Ranges:
        """Return the facts about a node's sums as facts about another node that computes the same sums.

        Args:
            values: ranges of values; None to keep the ranges of this object.
        """

        def of_other(facts: Mapping[Node, Fact]) -> dict[Node, Fact]:
            return {other: facts[node]} if node in facts else {}

        return Ranges(
            self.values if values is None else values,
            of_other(self.accumulators),
            of_other(self.product_sums),
            of_other(self.unsaturated),
        )

    def joined(self, *others: Ranges) -> Ranges:
        """Return the union of these facts and facts about other values and nodes."""
        every = (self, *others)
        return Ranges(
            {value: found for each in every for value, found in each.values.items()},
            {node: found for each in every for node, found in each.accumulators.items()},
            {node: found for each in every for node, found in each.product_sums.items()},
            {node: found for each in every for node, found in each.unsaturated.items()},
        )


NO_RANGES = Ranges({}, {}, {}, {})


@lru_cache(maxsize=8)  # passes that change nothing return the same graph
def analyze(graph: Graph) -> Ranges:
    """Return the ranges of all values of a graph, for every input and call; subgraphs are not analysed."""
    analysis = _Analysis(graph)
    for node in graph.nodes:
        analysis.visit(node)
    return Ranges(analysis.values, analysis.accumulators, analysis.product_sums, analysis.unsaturated)


class _Analysis:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.channels = limits.TRACKED_CHANNELS  # remaining number of channels that may get ranges
        self.values: dict[Value, Range] = {}
        self.accumulators: dict[Node, Accumulator] = {}
        self.product_sums: dict[Node, ProductSum] = {}
        self.unsaturated: dict[Node, Range] = {}
        for value in (*graph.inputs, *(state.value for state in graph.state)):
            if is_tracked(value.type):
                self.values[value] = full_range(value.type)
        for value, array in graph.constants.items():
            if is_tracked(value.type):
                channels = channel_count(value.type)
                known = self._take(channels)
                self.values[value] = (
                    array_range(array) if known else uniform(int(array.min()), int(array.max()), channels)
                )

    def _take(self, channels: int) -> bool:
        """Reserve ranges for `channels` channels, and return whether the limit permits them."""
        known = channels <= self.channels
        self.channels -= channels if known else 0
        return known

    def visit(self, node: Node) -> None:
        """Find the ranges of a node's results, or use the full ranges if there are too many channels."""
        values = [v for v in (*node.inputs, *node.outputs) if v is not None and is_tracked(v.type)]
        # A product sum has no more channels than weights, so it needs no reservation.
        known = isinstance(node.op, PRODUCT_SUMS) or self._take(sum(channel_count(v.type) for v in values))
        first = self._first_output(node) if known else None
        for value in node.outputs:
            if is_tracked(value.type):
                found = first if value is node.outputs[0] else None
                self.values[value] = found if found is not None else full_range(value.type)
        if not known:
            self._add_sum_of_elements(node)

    def _first_output(self, node: Node) -> Range | None:
        """Return the range of the first output, epilogue included; None if there is no rule."""
        first = self._apply(node)
        running = _bare_type(node) if node.epilogue else node.outputs[0].type
        for step in node.epilogue:
            after = step.op.infer_all([running, *(v.type for v in step.operands)])[0]
            if step.operands or not is_tracked(after):
                first = full_range(after) if is_tracked(after) else None
            else:
                first = unary(step.op, running, first, after)
            running = after
        return first

    def _add_sum_of_elements(self, node: Node) -> None:
        """Record the sums of a pooling or mean over an input with one range for all channels."""
        x = node.inputs[0] if node.inputs else None
        if x is None or x not in self.values:
            return
        sums = _sum_of_elements(node, uniform(*self.values[x].hull, 1))
        if sums is not None:
            channels = channel_count(x.type)
            bounds = (np.broadcast_to(each, channels) for each in (sums.low, sums.high, sums.partial))
            self.accumulators[node] = Accumulator(*bounds)

    def _apply(self, node: Node) -> Range | None:
        """Return the range of the first output before the epilogue; None if there is no rule."""
        if refuses_layout(node.op):  # channels are the last axis
            return None
        sums = product_sum(node, self.graph)
        if sums is not None and node.inputs[0] in self.values:
            bounds = sums.accumulator(self.values[node.inputs[0]])
            self.accumulators[node] = bounds
            self.product_sums[node] = sums
            out = _bare_type(node)
            scaled, known = sums.scaled(bounds, out)
            if bool(known.all()):
                self.unsaturated[node] = scaled
            return saturate(scaled, known, out.element)
        operands = [self.values.get(v) if v is not None else None for v in node.inputs]
        known = [operand for operand in operands if operand is not None]
        if not known or len(known) != len(operands):
            return None
        out = _bare_type(node)
        if not is_tracked(out):
            return None
        if node.op.pattern is Pattern.ELEMENTWISE and len(known) == 1:
            assert node.inputs[0] is not None
            return unary(node.op, node.inputs[0].type, known[0], out)
        rule = next((RULES[base] for base in type(node.op).__mro__ if base in RULES), None)
        sums_of = _sum_of_elements(node, known[0])
        if sums_of is not None:
            self.accumulators[node] = sums_of
        return rule(node, known, out) if rule is not None else None


def _bare_type(node: Node) -> TensorType:
    """Return the type of the first output before the epilogue."""
    return node.op.infer_all([v.type if v is not None else None for v in node.inputs])[0]


def unary(op: Op, given: TensorType, x: Range | None, out: TensorType) -> Range | None:
    """Return the range of a unary elementwise operator: extremes of its table over each input range."""
    if x is None:
        return full_range(out) if is_tracked(out) else None
    if isinstance(op, Copy):
        return x
    if isinstance(op, Clip):
        return x.clip(*op.bounds(given.element))
    if 8 * given.dtype.itemsize > TABLE_BITS or (given.quant is not None and given.quant.axis is not None):
        return full_range(out)
    lowest, highest = x.hull
    inputs = np.arange(lowest, highest + 1).astype(given.dtype.numpy)
    with np.errstate(all="ignore"):
        (result,) = op.evaluate([Tensor(given.with_shape(inputs.shape), inputs)])
    table = result.data.astype(np.int64)
    pairs, which = np.unique(np.stack([x.low, x.high], axis=1), axis=0, return_inverse=True)
    parts = [table[low - lowest : high - lowest + 1] for low, high in pairs.tolist()]
    low, high = (np.array([find(part) for part in parts], np.int64) for find in (np.min, np.max))
    which = which.reshape(-1)
    return Range(low[which], high[which])


def _sum_of_elements(node: Node, x: Range) -> Accumulator | None:
    """Return the sums of a pooling or mean, which adds raw elements; None for other operators."""
    op, value = node.op, node.inputs[0]
    assert value is not None
    if isinstance(op, AveragePool2D):
        count = op.size[0] * op.size[1]
    elif isinstance(op, Mean | Sum):
        count = op.count(value.type)
    else:
        return None
    low, high = np.minimum(x.low * count, 0), np.maximum(x.high * count, 0)
    return Accumulator(low, high, np.maximum(-low, high))


Rule = Callable[[Node, list[Range], TensorType], "Range | None"]


def _same(node: Node, operands: list[Range], out: TensorType) -> Range:  # noqa: ARG001
    return operands[0]


def _pad(node: Node, operands: list[Range], out: TensorType) -> Range:  # noqa: ARG001
    assert isinstance(node.op, Pad)
    fill, x = int(node.op.fill), operands[0]
    *outer, inner = node.op.padding or ((0, 0),)
    if any(pair != (0, 0) for pair in outer):
        x = x.union(fill, fill)
    low, high = (np.pad(bound, inner, constant_values=fill) for bound in (x.low, x.high))
    return Range(low, high)


def _reshape(node: Node, operands: list[Range], out: TensorType) -> Range:
    assert node.inputs[0] is not None
    return regroup(operands[0], channel_count(node.inputs[0].type), channel_count(out))


def regroup(x: Range, old: int, new: int) -> Range:
    """Return the range of the same elements, in the same order, with another length of the last axis."""
    if new % old == 0:
        return Range(np.tile(x.low, new // old), np.tile(x.high, new // old))
    if old % new == 0:
        return Range(x.low.reshape(-1, new).min(axis=0), x.high.reshape(-1, new).max(axis=0))
    return _everywhere(x, new)


def _everywhere(x: Range, channels: int) -> Range:
    low, high = x.hull
    return Range(np.full(channels, low, np.int64), np.full(channels, high, np.int64))


def _transpose(node: Node, operands: list[Range], out: TensorType) -> Range:
    assert isinstance(node.op, Transpose)
    order = node.op.permutation
    if not order or order[-1] == len(order) - 1:
        return operands[0]
    return _everywhere(operands[0], channel_count(out))


def _slice(node: Node, operands: list[Range], out: TensorType) -> Range:  # noqa: ARG001
    op, x = node.op, operands[0]
    assert isinstance(op, StridedSlice | SliceView)
    if not op.size:
        return x
    step = op.strides[-1] if isinstance(op, StridedSlice) else 1
    channels = op.begin[-1] + step * np.arange(op.size[-1])
    return Range(x.low[channels], x.high[channels])


def _concatenate(node: Node, operands: list[Range], out: TensorType) -> Range:
    assert isinstance(node.op, Concatenate | ConcatenateView)
    lows, highs = [x.low for x in operands], [x.high for x in operands]
    if node.op.axis == len(out.shape) - 1:
        return Range(np.concatenate(lows), np.concatenate(highs))
    return Range(np.min(lows, axis=0), np.max(highs, axis=0))


def _reduce(node: Node, operands: list[Range], out: TensorType) -> Range:
    assert isinstance(node.op, ReduceMax | ReduceMin)
    x = node.inputs[0]
    assert x is not None
    keeps_channels = len(x.type.shape) - 1 not in node.op.axes
    return operands[0] if keeps_channels else _everywhere(operands[0], channel_count(out))


def _mean(node: Node, operands: list[Range], out: TensorType) -> Range | None:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Mean | Sum)
    assert x is not None
    if x.type.quant is None or op.out.quant is None or len(x.type.shape) - 1 in op.axes:
        return None
    count, zero_point = op.count(x.type), x.type.quant.zero_point
    totals = Range(operands[0].low * count, operands[0].high * count)
    centred = Range(totals.low - zero_point * count, totals.high - zero_point * count)
    scaled, known = multiply(centred, *op.multiplier(x.type.quant, count))
    return to_element(scaled, known & fits(totals, INT32), out.element)


def _minimum(node: Node, operands: list[Range], out: TensorType) -> Range:  # noqa: ARG001
    a, b = (x.spread(channel_count(out)) for x in operands)
    return Range(np.minimum(a.low, b.low), np.minimum(a.high, b.high))


def _maximum(node: Node, operands: list[Range], out: TensorType) -> Range:  # noqa: ARG001
    a, b = (x.spread(channel_count(out)) for x in operands)
    return Range(np.maximum(a.low, b.low), np.maximum(a.high, b.high))


def _sum_or_difference(node: Node, operands: list[Range], out: TensorType) -> Range | None:
    """Return the range of a quantised sum or difference. Both are monotone in the first operand."""
    assert isinstance(node.op, Add | Sub)
    quants = [v.type.quant if v is not None else None for v in node.inputs]
    if quants[0] is None or quants[1] is None or node.op.out.quant is None:
        return None
    parameters = add_parameters(quants[0], quants[1], node.op.out)
    scaled: list[Range] = []
    known: Array = np.ones(channel_count(out), np.bool_)
    for x, quant, multiplier in zip(operands, quants, (parameters.first, parameters.second), strict=True):
        assert quant is not None
        factor = 1 << parameters.left_shift
        shifted = Range((x.low - quant.zero_point) * factor, (x.high - quant.zero_point) * factor)
        common, right = multiply(shifted, *multiplier)
        scaled.append(common.spread(channel_count(out)))
        known = known & right & fits(shifted, INT32)
    first, second = scaled
    if isinstance(node.op, Sub):
        second = Range(-second.high, -second.low)
    total = Range(first.low + second.low, first.high + second.high)
    result, right = multiply(total, *parameters.output)
    return to_element(result, known & right & fits(total, INT32), out.element)


def _product(node: Node, operands: list[Range], out: TensorType) -> Range | None:
    assert isinstance(node.op, Mul)
    quants = [v.type.quant if v is not None else None for v in node.inputs]
    if quants[0] is None or quants[1] is None or node.op.out.quant is None:
        return None
    (a, b), points = (x.spread(channel_count(out)) for x in operands), [q.zero_point for q in quants if q]
    ends = [(x - points[0]) * (y - points[1]) for x in (a.low, a.high) for y in (b.low, b.high)]
    products = Range(np.min(ends, axis=0), np.max(ends, axis=0))
    scaled, known = multiply(products, *node.op.multiplier(quants[0], quants[1]))
    return to_element(scaled, known, out.element)


RULES: Mapping[type[Op], Rule] = {
    MaxPool2D: _same,
    AveragePool2D: _same,
    ResizeNearestNeighbor: _same,
    Pad: _pad,
    Reshape: _reshape,
    Transpose: _transpose,
    StridedSlice: _slice,
    SliceView: _slice,
    Concatenate: _concatenate,
    ConcatenateView: _concatenate,
    ReduceMax: _reduce,
    ReduceMin: _reduce,
    Mean: _mean,
    Sum: _mean,
    Add: _sum_or_difference,
    Sub: _sum_or_difference,
    Mul: _product,
    Minimum: _minimum,
    Maximum: _maximum,
}
