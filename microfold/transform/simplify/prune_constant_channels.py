"""Removes channels that are constant for every input of the model, and channels that no output depends on.

    %w1 = constant int8[2,1,1,1] q(0.1, 0) [1, 1]
    %b1 = constant int32[2] [0, -100000]
    %a: int8[1,4,4,2] q(0.1, -128) = conv2d(%x, %w1, %b1) {...}     // channel 1 is always -128
    %w2 = constant int8[1,1,1,2] q(0.1, 0) [3, 5]
    %y: int8[1,4,4,1] q(0.1, 0) = conv2d(%a, %w2) {...}
        ->
    %w1 = constant int8[1,1,1,1] q(0.1, 0) [1]
    %b1 = constant int32[1] [0]
    %a: int8[1,4,4,1] q(0.1, -128) = conv2d(%x, %w1, %b1) {...}
    %w2 = constant int8[1,1,1,1] q(0.1, 0) [3]
    %y: int8[1,4,4,1] q(0.1, 0) = conv2d(%a, %w2) {...}

`microfold.analysis.ranges` proves which channels are constant, `microfold.analysis.channel_liveness` which
ones are live. The pass then

1. slices weights, biases and per-channel quantisation to the live channels;
2. adds the contribution of each removed constant channel to the bias of its readers; in the example it is 0,
   because channel 1 holds the zero point;
3. replaces values of which all channels are constant, if the constant is small or its readers broadcast it.

It repeats these steps until nothing changes. The output of the model stays the same bit for bit.

Two kinds of constant channels stay. A channel whose value is not the zero point stays in front of a padded
window: its contribution is smaller at the border, where padding cuts off taps. If the target computes
channels in blocks (`PassContext.channel_block`), a value keeps all channels unless a whole block is saved.

Constant channels are frequent in quantised networks. A ReLU may suppress a filter completely, and the
quantiser then gives this filter an extreme scale. Each removal is recorded as a `Claim` of a `PruningProof`,
which `microfold.analysis.check_pruning` verifies independently.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from microfold.analysis.channel_liveness import ChannelLink, ChannelLiveness
from microfold.analysis.interval import Range, channel_count
from microfold.analysis.pruning_proof import Claim, PrunedValue, PruningProof, Reason
from microfold.analysis.ranges import Ranges, analyze
from microfold.ir import limits
from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value, make_node
from microfold.ir.op import Pattern
from microfold.ir.types import Array, TensorType
from microfold.ops.accumulate import BIAS_DTYPES
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.copy import Copy
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

MAX_FULL_CONSTANT_BYTES = 1024  # largest constant, in bytes, that is stored without broadcast


@function_pass(opt_level=3)
def prune_constant_channels(graph: Graph, context: PassContext) -> Graph:
    """Remove constant and dead channels until none are left."""
    values = (v for node in graph.nodes for v in (*node.inputs, *node.outputs) if v is not None)
    channels = sum(channel_count(v.type) for v in values)
    if channels > limits.TRACKED_CHANNELS:
        context.declined(
            f"graph @{graph.name}",
            f"its nodes have {channels} channels; the limit is {limits.TRACKED_CHANNELS}",
        )
        return graph
    ledger = _ProofBuilder(graph)
    pruned = graph
    while True:
        ranges = analyze(pruned)
        replaced = _constant_values(pruned, ranges)
        liveness = ChannelLiveness(pruned, ranges, replaced, context.channel_block)
        rewrite = _Rewrite(pruned, ranges, liveness, replaced)
        result = rewrite.run()
        if result is pruned:
            break
        ledger.record(pruned, ranges, liveness, rewrite.renamed)
        pruned = result
    for value, reason in liveness.declined():
        context.declined(value, reason)
    if pruned is graph:
        return graph
    proof = ledger.proof(pruned)
    for value in proof.values:
        for (reason, low, high), channels in value.groups():
            total = channel_count(value.value.type)
            where = f"{value.layer} %{value.value.name}"
            context.fired(where, f"{len(channels)} of {total} channels, [{low}, {high}]: {reason.value}")
    before, after = proof.macs
    context.fired(f"graph @{graph.name}", f"{after:,} of {before:,} multiply-accumulates are left", proof)
    return pruned


def _constant_values(graph: Graph, ranges: Ranges) -> dict[Value, TensorType]:
    """Return the computed values that a constant can replace, with the type of this constant.

    All channels of these values are constant. The constant has the value's type, or one element per channel
    if all readers broadcast it.
    """
    found: dict[Value, TensorType] = {}
    ends = {*graph.outputs, *(state.next for state in graph.state)}
    consumers = graph.consumers()
    for node in graph.nodes:
        if node.op.has_effect or isinstance(node.op, Copy):  # a copy exists for its storage
            continue
        for value in node.outputs:
            if value not in ranges.values or not ranges.values[value].constant.all():
                continue
            if value.type.nbytes <= MAX_FULL_CONSTANT_BYTES:
                found[value] = value.type
            elif value not in ends and all(
                _broadcasts(reader, value, found) for reader in consumers.get(value, [])
            ):
                shape = (*(1 for _ in value.type.shape[:-1]), value.type.shape[-1])
                found[value] = value.type.with_shape(shape)
    return found


def _broadcasts(node: Node, value: Value, replaced: Mapping[Value, TensorType]) -> bool:
    """Return whether the node's result stays the same if the operand has only one element per channel."""
    op, out = node.op, node.outputs[0].type
    others = [v for v in node.inputs if v is not None and v is not value]
    return (
        op.pattern is Pattern.BROADCAST
        and not isinstance(op, BroadcastTo)
        and not any(value in step.operands for step in node.epilogue)
        # The result gets its shape from another operand, which must keep it.
        and any(replaced.get(v, v.type).shape == out.shape for v in others)
    )


class _Rewrite:
    """One round of the pass: rebuilds the graph with each value reduced to its live channels.

    Attributes:
        renamed: new value of each computed value that has changed.
    """

    def __init__(
        self, graph: Graph, ranges: Ranges, liveness: ChannelLiveness, replaced: Mapping[Value, TensorType]
    ):
        self.graph = graph
        self.ranges = ranges
        self.liveness = liveness
        self.replaced = replaced
        self.renamed: dict[Value, Value] = {}
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.nodes: list[Node] = []
        self._cuts: dict[tuple[Value, bytes], Value] = {}

    def run(self) -> Graph:
        """Return the new graph, or the old one if nothing has changed."""
        for node in self.graph.nodes:
            if self.liveness.is_live(node):
                self._visit(node)
        if self.nodes == list(self.graph.nodes):
            return self.graph
        ends = dict.fromkeys((*self.graph.outputs, *(state.next for state in self.graph.state)))
        final = {value: self._value(value) for value in ends}
        final = {old: new for old, new in final.items() if old is not new}
        return self.graph.with_nodes(self.nodes, constants=self.constants, replaced=final)

    def _visit(self, node: Node) -> None:
        selects = node in self.liveness.contributions
        inputs = self._product_sum(node) if selects else self._inputs(node)
        op = node.op
        kept = [self.liveness.of(value) for value in node.outputs]
        if isinstance(op, Concatenate) and len(inputs) == 1 < len(node.inputs) and not node.epilogue:
            assert inputs[0] is not None
            self.renamed[node.output] = inputs[0]
            return
        if isinstance(op, Reshape):
            op = replace(op, shape=(*op.shape[:-1], int(kept[0].sum()))) if not kept[0].all() else op
        epilogue = tuple(
            EpilogueStep(s.op, tuple(self.renamed.get(v, v) for v in s.operands)) for s in node.epilogue
        )
        if op is node.op and tuple(inputs) == node.inputs and epilogue == node.epilogue:
            self.nodes.append(node)
            return
        if all(mask.all() for mask in kept):
            self.nodes.append(Node(op, tuple(inputs), node.outputs, epilogue))
            return
        made = make_node(op, inputs, [value.name for value in node.outputs], epilogue)
        self.nodes.append(made)
        self.renamed.update(zip(node.outputs, made.outputs, strict=True))

    def _inputs(self, node: Node) -> list[Value | None]:
        """Return the new operands of a node that is not a product sum with a selection of input channels."""
        links = self.liveness.links[node]
        if links is None:
            return [self._value(value) if value is not None else None for value in node.inputs]
        result = self.liveness.of(node.output)
        if isinstance(node.op, DepthwiseConv2D):
            x, *constants = node.inputs
            assert x is not None
            cuts = [self._slice(value, result) if value is not None else None for value in constants]
            return [self._with_channels(x, links[0].backward(result)), *cuts]
        if isinstance(node.op, Concatenate):
            parts = [(link.value, link.backward(result)) for link in self._each(node, links)]
            return [self._with_channels(value, mask) for value, mask in parts if mask.any()]
        linked = {link.value: link for link in links}
        return [
            None
            if value is None
            else self._with_channels(value, linked[value].backward(result))
            if value in linked
            else self._value(value)
            for value in node.inputs
        ]

    @staticmethod
    def _each(node: Node, links: tuple[ChannelLink, ...]) -> list[ChannelLink]:
        """Return one link for each operand of a concatenation, whose equal operands may share a link."""
        if len(links) == len(node.inputs):
            return list(links)
        by_value = {link.value: link for link in links}
        return [by_value[value] for value in node.inputs if value is not None]

    def _product_sum(self, node: Node) -> list[Value | None]:
        x, weights, *rest = node.inputs
        bias = rest[0] if rest else None
        assert x is not None and weights is not None
        kept_in, kept_out = self.liveness.of(x), self.liveness.of(node.outputs[0])
        if isinstance(node.op, DepthwiseConv2D):  # single input channel: weights [1, h, w, outputs]
            filters = self._slice(weights, kept_out)
        else:
            filters = self._slice(weights, kept_out, axis=0)
            filters = self._slice(filters, kept_in)
        folded = self.liveness.contributions[node].constant[:, ~kept_in].sum(axis=1)
        inputs = [self._value(x), filters]
        if bias is None and not folded.any():
            return [*inputs, *rest]
        if folded.any():
            array = self.graph.constants[bias] if bias is not None else np.zeros(len(folded), np.int64)
            dtype = bias.type.dtype if bias is not None else BIAS_DTYPES[x.type.dtype, weights.type.dtype][0]
            name = bias.name if bias is not None else f"{node.outputs[0].name}_bias"
            total = array.astype(np.int64) + folded
            bias = Value(name, TensorType(dtype, total.shape, bias.type.quant if bias is not None else None))
            self.constants[bias] = total.astype(dtype.numpy)
        assert bias is not None
        return [*inputs, self._slice(bias, kept_out)]

    def _value(self, value: Value) -> Value:
        """Return the value with its live channels."""
        return self._with_channels(value, self.liveness.of(value))

    def _with_channels(self, value: Value, channels: Array) -> Value:
        """Return the new operand of a reader that needs these channels; each reader has its own constants."""
        if value in self.graph.constants or value in self.replaced:
            return self._slice(value, channels)
        return self.renamed.get(value, value)

    def _slice(self, value: Value, channels: Array, axis: int = -1) -> Value:
        """Return a constant, or the constant that replaces a value, with some indices of one axis."""
        if value not in self.replaced and channels.all():
            return value
        key = (value, channels.tobytes() + bytes([axis % 256]))
        if key not in self._cuts:
            if value in self.replaced:
                data = self.ranges.values[value].low.astype(value.type.dtype.numpy)
                array = np.broadcast_to(data, self.replaced[value].shape)
            else:
                array = self.constants[value]
            quant = value.type.quant
            if quant is not None and quant.axis == axis % len(array.shape):
                scales, points = (
                    tuple(x for x, keep in zip(items, channels.tolist(), strict=True) if keep)
                    for items in (quant.scales, quant.zero_points)
                )
                quant = replace(quant, scales=scales, zero_points=points)
            cut = np.ascontiguousarray(np.compress(channels, array, axis=axis))
            self._cuts[key] = Value(value.name, TensorType(value.type.dtype, cut.shape, quant))
            self.constants[self._cuts[key]] = cut
        return self._cuts[key]


class _ProofBuilder:
    """Collects the claims of all rounds, in terms of the values and channels of the original graph."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.claims: dict[Value, list[Claim]] = {}
        # For each value of the current graph: the original values, and the indices of their channels in it.
        self.origins = {
            value: [(value, np.arange(channel_count(value.type)))]
            for node in graph.nodes
            for value in node.outputs
        }

    def record(
        self, graph: Graph, ranges: Ranges, liveness: ChannelLiveness, renamed: Mapping[Value, Value]
    ) -> None:
        """Record the channels that one round has removed."""
        origins: dict[Value, list[tuple[Value, Array]]] = {}
        for node in graph.nodes:
            is_live = liveness.is_live(node)
            for value in node.outputs:
                needed = liveness.of(value)
                kept = needed if is_live and value not in liveness.replaced else np.zeros_like(needed)
                for origin, channels in self.origins.get(value, []):
                    if value in ranges.values:
                        self._claim(origin, channels, ranges.values[value], kept, needed)
                    if kept.any():
                        origins.setdefault(renamed.get(value, value), []).append((origin, channels[kept]))
        self.origins = origins

    def _claim(self, origin: Value, channels: Array, range_: Range, kept: Array, needed: Array) -> None:
        claims = self.claims.setdefault(origin, [])
        for index in np.flatnonzero(~kept).tolist():
            low, high = int(range_.low[index]), int(range_.high[index])
            constant = Reason.REPLACED if needed[index] else Reason.CONSTANT
            reason = constant if low == high else Reason.UNREAD
            claims.append(Claim(int(channels[index]), low, high, reason))

    def proof(self, after: Graph) -> PruningProof:
        """Return all claims, in the order of the graph."""
        values = [
            PrunedValue(node.op.name, value, tuple(sorted(self.claims[value], key=lambda c: c.channel)))
            for node in self.graph.nodes
            for value in node.outputs
            if self.claims.get(value)
        ]
        before_macs, after_macs = (sum(node.macs() for node in g.nodes) for g in (self.graph, after))
        return PruningProof(self.graph.name, tuple(values), (before_macs, after_macs))
