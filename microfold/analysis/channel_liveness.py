"""Channel liveness: the channels of every value that some output of the graph depends on.

This is a backward data-flow analysis, like liveness of variables, over sets of channels::

    inputs, outputs, states, operators without a rule   all channels are live
        ^
    product sum (conv2d, fully_connected, ...)          input channel i is live if a live output channel o
        ^                                               has a weight for i, and i's contribution to o is not
        |                                               the same number for all inputs and all positions
    channel-wise operator (depthwise, add, pool, ...)   operand and result have the same live channels: the
                                                        analysis goes backward and forward along `ChannelLink`

The result is the least fixed point. Values that only depend on each other are therefore dead.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
from msgspec import Struct

from microfold.analysis.interval import Range, channel_count, is_tracked
from microfold.analysis.product_sum import ProductSum
from microfold.analysis.ranges import Ranges
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.ir.op import Op, Pattern
from microfold.ir.types import Array
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.image import refuses_layout
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.transpose import Transpose
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin

INT32_LIMIT = (1 << 31) - 1


class Contribution(Struct, frozen=True, eq=False):
    """Contributions of the input channels of an ungrouped product sum to its output channels.

    Attributes:
        reads: whether the output needs the input channel, bool [outputs, inputs]. It does if some weight is
            not zero, and if the contribution varies with the input or differs at the border of the image.
        constant: contribution of every channel that is not read, in units of the accumulator, int64
            [outputs, inputs]; 0 for channels that are read.
    """

    reads: Array
    constant: Array


def compute_contribution(sums: ProductSum, x: Range) -> Contribution:
    """Compute the contribution of each input channel to each output channel, given the input's range."""
    weights = sums.weights[0]  # [outputs, taps, inputs]
    touched = weights.any(axis=1)
    step = np.where(x.constant, x.low - sums.zero_point, 0)
    fixed = x.constant & (step != 0) & touched
    same = np.broadcast_to(x.constant, touched.shape)
    total = weights.sum(axis=1)
    candidates = np.flatnonzero(fixed.any(axis=0))
    if candidates.size and (sums.positions is None or not all(kinds.all() for kinds in sums.positions)):
        # A channel can be folded only if its contribution is the same at every kind of position.
        if sums.positions is None:
            uniform = ~touched[:, candidates]
        else:
            rows, columns = (kinds.astype(np.float64) for kinds in sums.positions)
            split = weights[:, :, candidates].reshape(-1, rows.shape[1], columns.shape[1], candidates.size)
            at = np.einsum("ar,bc,orci->aboi", rows, columns, split, optimize=True)
            uniform = (at == at[0, 0]).all(axis=(0, 1))
            total[:, candidates] = at[0, 0]
        same = same.copy()
        same[:, candidates] &= uniform | (step[candidates] == 0)
    constant = np.where(same, total * step, 0).astype(np.int64)
    # The bias must stay an int32, whatever subset of the channels is folded into it.
    heavy = np.abs(constant).sum(axis=1) + np.abs(sums.bias) > INT32_LIMIT
    reads = touched & (~same | (heavy[:, np.newaxis] & (constant != 0)))
    return Contribution(reads, np.where(reads, 0, constant))


def any_of(mask: Array, axis: int) -> Array:
    """Return `numpy.any` along an axis of a matrix, always as an array."""
    return np.asarray(mask.any(axis=axis))


class ChannelLiveness:
    """Live channels of every value that a node computes or reads.

    Args:
        replaced: values that will be replaced by constants. Nodes that compute nothing else are dead.
        block: number of channels that the target computes together. A value keeps all its channels if
            dropping the dead ones would not save a whole block.

    Attributes:
        contributions: product sums that can lose single input and output channels.
        links: channel links of all other nodes; None for a node whose operands and results must keep all
            channels.
    """

    def __init__(self, graph: Graph, ranges: Ranges, replaced: Collection[Value], block: int = 1):
        self.graph = graph
        self.block = block
        self.ranges = ranges
        self.replaced = replaced
        self.contributions: dict[Node, Contribution] = {}
        self.links: dict[Node, tuple[ChannelLink, ...] | None] = {}
        self._needed: dict[Value, Array] = {}
        self._rounded: dict[Value, int] = {}
        self._producers = graph.producers()
        self._readers = graph.consumers()
        # Worklist: a heap of positions, counted from the end of the graph; and values with newly live
        # channels.
        self._places = {node: place for place, node in enumerate(reversed(graph.nodes))}
        self._pending: list[int] = []
        self._queued: set[int] = set()
        self._changed: dict[Value, None] = {}
        for node in graph.nodes:
            sums = ranges.product_sums.get(node)
            extra = any(step.operands for step in node.epilogue)
            if sums is not None and sums.weights.shape[0] == 1 and not extra:
                assert node.inputs[0] is not None
                self.contributions[node] = compute_contribution(sums, ranges.values[node.inputs[0]])
            else:
                self.links[node] = None if extra else channel_links(node, sums)
        self._ends = dict.fromkeys((*graph.outputs, *(state.next for state in graph.state)))
        for value in (*graph.inputs, *(state.value for state in graph.state), *self._ends):
            self._mark_live(value)
        self._run_to_fixed_point()

    def of(self, value: Value) -> Array:
        """Return which channels of a value are live, bool [channels]."""
        found = self._needed.get(value)
        return found if found is not None else np.zeros(channel_count(value.type), np.bool_)

    def is_live(self, node: Node) -> bool:
        """Return whether a node must be computed."""
        return node.op.has_effect or any(
            value not in self.replaced and self.of(value).any() for value in node.outputs
        )

    def _mark_live(self, value: Value, channels: Array | None = None) -> None:
        before = self.of(value)
        after = np.ones_like(before) if channels is None else before | channels
        if not np.array_equal(before, after):
            self._needed[value] = after
            self._changed[value] = None
            for node in (self._producers.get(value), *self._readers.get(value, ())):
                self._queue(node)

    def _queue(self, node: Node | None) -> None:
        place = self._places[node] if node is not None else None
        if place is not None and place not in self._queued:
            self._queued.add(place)
            heapq.heappush(self._pending, place)

    def _run_to_fixed_point(self) -> None:
        """Run the analysis to its fixed point."""
        nodes = self.graph.nodes[::-1]
        for node in nodes:
            self._queue(node)
        self._changed = dict.fromkeys(value for node in nodes for value in node.outputs)
        while True:
            while self._pending:
                place = heapq.heappop(self._pending)
                self._queued.remove(place)
                if self.is_live(nodes[place]):
                    self._visit(nodes[place])
            changed, self._changed = self._changed, {}
            computed = [(value, self._producers[value]) for value in changed if value in self._producers]
            for value, node in computed:
                if self.is_live(node):
                    self._round(value)
            # A product sum whose inputs are all dead keeps one channel: no operator accepts an empty image.
            for node in dict.fromkeys(node for _, node in computed):
                image = node.inputs[0] if node in self.contributions else None
                if image is not None and self.is_live(node) and not self.of(image).any():
                    self._mark_live(image, np.arange(channel_count(image.type)) == 0)
            if not self._changed:
                return

    def _round(self, value: Value) -> None:
        """Mark all channels of a value as live if the live ones alone need as many blocks."""
        channels = self.of(value)
        kept, total = int(channels.sum()), len(channels)
        if 0 < kept < total and -(-kept // self.block) == -(-total // self.block):
            self._rounded[value] = kept
            self._mark_live(value)

    def _visit(self, node: Node) -> None:
        if node in self.contributions:
            assert node.inputs[0] is not None
            outputs = self.of(node.outputs[0])
            self._mark_live(node.inputs[0], any_of(self.contributions[node].reads[outputs], axis=0))
            return
        links = self.links[node]
        if links is None:
            for value in (*node.operands, *node.outputs):
                self._mark_live(value)
            return
        for link in links:
            # A constant operand is sliced separately for each reader, so it links nothing.
            if link.value not in self.graph.constants:
                self._mark_live(link.value, link.backward(self.of(node.output)))
                if link.value not in self.replaced:
                    self._mark_live(node.output, link.forward(self.of(link.value)))
        linked = {link.value for link in links}
        for value in node.operands:
            if value not in linked:
                self._mark_live(value)

    def declined(self) -> Iterator[tuple[Node, str]]:
        """Yield the live nodes that keep constant channels, each with the reason why they stay."""
        consumers = self.graph.consumers()
        for node in self.graph.nodes:
            for value in node.outputs if self.is_live(node) else ():
                if value not in self.ranges.values:
                    continue
                kept = self.ranges.values[value].constant & self.of(value)
                if kept.any():
                    yield node, f"{kept.sum()} constant channels stay: {self._why(value, kept, consumers)}"

    def _why(self, value: Value, kept: Array, consumers: Mapping[Value, list[Node]]) -> str:
        if value in self._ends:
            return "the value leaves the graph"
        if value in self._rounded:
            return f"{self._rounded[value]} channels would be as many blocks of {self.block}"
        for reader in consumers.get(value, []):
            where = describe(reader)
            if reader in self.contributions and reader.inputs[0] is value:
                reads = any_of(self.contributions[reader].reads[self.of(reader.outputs[0])], axis=0)
                if (reads & kept).any():
                    return f"{where} cannot fold them: its padding cuts them off at the border"
            elif self.links.get(reader) is None:
                return f"{where} needs all channels as they are"
        return "other channels that go with them are needed"


class ChannelLink(Struct, frozen=True, eq=False):
    """Correspondence of the channels of an operand and of the result of a channel-wise node.

    Attributes:
        value: the operand.
        backward: maps live channels of the result to live channels of the operand.
        forward: maps live channels of the operand to live channels of the result.
    """

    value: Value
    backward: Callable[[Array], Array]
    forward: Callable[[Array], Array]


def channel_links(node: Node, sums: ProductSum | None) -> tuple[ChannelLink, ...] | None:
    """Return the links of a channel-wise node; None if the node must keep all channels."""
    if len(node.outputs) != 1 or not node.inputs or refuses_layout(node.op):
        return None
    x, out = node.inputs[0], node.output
    if x is None or not is_tracked(x.type) or not is_tracked(out.type):
        return None
    if isinstance(node.op, DepthwiseConv2D):
        return _depthwise(x, out) if sums is not None else None
    if any(v.type.quant is not None and v.type.quant.axis is not None for v in (*node.operands, out)):
        return None
    return tuple(_links(node)) or None


def _depthwise(x: Value, out: Value) -> tuple[ChannelLink]:
    channels = channel_count(x.type)
    multiplier = channel_count(out.type) // channels
    return (
        ChannelLink(
            x,
            lambda result: any_of(result.reshape(channels, multiplier), axis=1),
            lambda operand: np.repeat(operand, multiplier),
        ),
    )


def _links(node: Node) -> Iterator[ChannelLink]:
    op, inputs, out = node.op, [v for v in node.inputs if v is not None], node.output
    first = inputs[0]
    last = len(first.type.shape) - 1
    channels = channel_count(out.type)
    if isinstance(op, Concatenate):
        yield from _concatenation(op, inputs)
    elif isinstance(op, Reshape):
        yield from _reshape(first, out)
    elif _keeps_channels(node):
        if last >= 0:
            yield _same(first)
    elif _is_elementwise(op) and channels > 1:
        # An operand with one channel is broadcast. It has no link, and keeps its channel.
        yield from (_same(v) for v in dict.fromkeys(inputs) if v.type.shape and v.type.shape[-1] == channels)


def _is_elementwise(op: Op) -> bool:
    # BroadcastTo is excluded: its attribute fixes the number of channels of the result.
    return op.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST) and not isinstance(op, BroadcastTo)


def _keeps_channels(node: Node) -> bool:
    op, x = node.op, node.inputs[0]
    assert x is not None
    last = len(x.type.shape) - 1
    if isinstance(op, MaxPool2D | AveragePool2D | ResizeNearestNeighbor):
        return True
    if isinstance(op, Mean | Sum | ReduceMax | ReduceMin):
        return last not in op.axes
    if isinstance(op, Pad):
        return last >= 0 and op.padding[-1] == (0, 0)
    return isinstance(op, Transpose) and last >= 0 and op.permutation[-1] == last


def _same(value: Value) -> ChannelLink:
    return ChannelLink(value, lambda result: result, lambda operand: operand)


def _concatenation(op: Concatenate, inputs: list[Value]) -> Iterator[ChannelLink]:
    if op.axis < len(inputs[0].type.shape) - 1:
        yield from map(_same, dict.fromkeys(inputs))
        return
    ends = np.cumsum([channel_count(v.type) for v in inputs]).tolist()
    for value, end in zip(inputs, ends, strict=True):
        part = slice(end - channel_count(value.type), end)

        def forward(operand: Array, part: slice = part) -> Array:
            result = np.zeros(ends[-1], np.bool_)
            result[part] = operand
            return result

        yield ChannelLink(value, lambda result, part=part: result[part], forward)


def _reshape(x: Value, out: Value) -> Iterator[ChannelLink]:
    """Yield a link if the new last axis is the old one, or a whole number of copies of it."""
    old, new = channel_count(x.type), channel_count(out.type)
    if x.type.shape and out.type.shape and new % old == 0:
        yield ChannelLink(
            x,
            lambda result: any_of(result.reshape(-1, old), axis=0),
            lambda operand: np.tile(operand, new // old),
        )
