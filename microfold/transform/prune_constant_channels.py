"""Removes channels that hold the same number for every input, and channels that nobody needs.

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

Ranges come from `microfold.analysis.ranges`, what is needed from `microfold.analysis.demand`: the pass cuts
weights, biases and per-channel quantisation to the needed channels and adds what the constant ones contribute
to their readers' biases. The output is the same bits for every input. A channel that holds another number than
the zero point stays in front of a padded window, whose sum it changes less at the border than inside.

A value all of whose channels are constant becomes data if that is small or is broadcast by its readers.

Quantised networks have such channels where a ReLU never lets a filter through and quantisation then gave it an
extreme scale. Every removal is claimed in a `Certificate`, which goes with the decision to the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from microfold.analysis.certificate import Certificate, Claim, PrunedValue, Reason
from microfold.analysis.demand import Demand, channel_links
from microfold.analysis.interval import channel_count
from microfold.analysis.ranges import Ranges, analyze
from microfold.ir.graph import Graph, Node, Value, make_node, resolve, rewire
from microfold.ir.op import Pattern
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.broadcast_to import BroadcastTo
from microfold.ops.concatenate import Concatenate
from microfold.ops.copy import Copy
from microfold.ops.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.reshape import Reshape
from microfold.passes import PassContext, function_pass

TINY = 1024  # bytes that a constant tensor may take in full


@function_pass(opt_level=3)
def prune_constant_channels(graph: Graph, context: PassContext) -> Graph:
    """Remove channels that are constant or not needed, until there are none."""
    ledger = _Ledger(graph)
    pruned = graph
    while True:
        ranges = analyze(pruned)
        replaced = _replaceable(pruned, ranges)
        demand = Demand(pruned, ranges, frozenset(replaced))
        rewrite = _Rewrite(pruned, demand, replaced)
        result = rewrite.run()
        if result is pruned:
            break
        ledger.record(pruned, ranges, demand, rewrite.renamed)
        pruned = result
    for value, reason in demand.declined():
        context.declined(value, reason)
    if pruned is graph:
        return graph
    certificate = ledger.certificate(pruned)
    for value in certificate.values:
        for (reason, low, high), channels in value.groups():
            total = channel_count(value.value.type)
            where = f"{value.layer} %{value.value.name}"
            context.fired(where, f"{len(channels)} of {total} channels, [{low}, {high}]: {reason.value}")
    before, after = certificate.macs
    context.fired(
        f"graph @{graph.name}", f"{after:,} of {before:,} multiply-accumulates are left", certificate
    )
    return pruned


def _replaceable(graph: Graph, ranges: Ranges) -> dict[Value, TensorType]:
    """Computed values all of whose channels are constant, and the type of the constant to stand for each."""
    found: dict[Value, TensorType] = {}
    ends = {*graph.outputs, *(state.next for state in graph.state)}
    consumers = graph.consumers()
    for node in graph.nodes:
        if node.op.has_effect or isinstance(node.op, Copy):  # a copy is there for its storage
            continue
        for value in node.outputs:
            if value not in ranges.values or not ranges.values[value].constant.all():
                continue
            if value.type.nbytes <= TINY:
                found[value] = value.type
            elif value not in ends and all(_broadcasts(reader, value) for reader in consumers.get(value, [])):
                shape = (*(1 for _ in value.type.shape[:-1]), value.type.shape[-1])
                found[value] = value.type.with_shape(shape)
    return found


def _broadcasts(node: Node, value: Value) -> bool:
    """The node's result stays the same if the operand has one element per channel."""
    op, out = node.op, node.outputs[0].type
    others = [v for v in node.inputs if v is not value]
    return (
        op.pattern is Pattern.BROADCAST
        and not isinstance(op, BroadcastTo)
        and not any(value in step.operands for step in node.epilogue)
        and any(v is not None and v.type.shape == out.shape for v in others)
    )


class _Rewrite:
    """The graph with each value cut to its needed channels.

    Attributes:
        renamed: what became of values that nodes compute.
    """

    def __init__(self, graph: Graph, demand: Demand, replaced: Mapping[Value, TensorType]):
        self.graph = graph
        self.demand = demand
        self.replaced = replaced
        self.renamed: dict[Value, Value] = {}
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.nodes: list[Node] = []
        self._cuts: dict[tuple[Value, bytes], Value] = {}

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if self.demand.is_live(node):
                self._visit(node)
        if self.nodes == list(self.graph.nodes):
            return self.graph
        ends = {*self.graph.outputs, *(state.next for state in self.graph.state)}
        final = {v: self._operand(v) for v in ends}
        final = {old: new for old, new in final.items() if old is not new}
        return self.graph.with_nodes(self.nodes, constants=self.constants, replaced=final)

    def _visit(self, node: Node) -> None:
        demand, graph = self.demand, self.graph
        links = channel_links(node, graph)
        if node in demand.contributions:
            inputs = self._product_sum(node)
        elif isinstance(node.op, DepthwiseConv2D) and links is not None:
            kept = demand.of(node.output)
            inputs = [self._operand(node.inputs[0]), *(self._cut(v, kept) for v in node.inputs[1:])]
        elif links is not None:
            inputs = self._linked(node)
        else:
            inputs = [self._operand(v) for v in node.inputs]
        self._emit(node, inputs)

    def _emit(self, node: Node, inputs: list[Value | None]) -> None:
        op = node.op
        kept = [demand for demand in map(self.demand.of, node.outputs)]
        if isinstance(op, Concatenate) and len(inputs) == 1 and len(node.inputs) > 1 and not node.epilogue:
            assert inputs[0] is not None
            self.renamed[node.output] = inputs[0]
            return
        if isinstance(op, Reshape) and not kept[0].all():
            op = replace(op, shape=(*op.shape[:-1], int(kept[0].sum())))
        epilogue = rewire(node, self.renamed).epilogue
        if op == node.op and tuple(inputs) == node.inputs and epilogue == node.epilogue:
            self.nodes.append(node)
            self.renamed.update(zip(node.outputs, node.outputs, strict=True))
            return
        made = make_node(op, inputs, [value.name for value in node.outputs], epilogue)
        if all(mask.all() for mask in kept):
            made = replace(made, outputs=node.outputs)
        self.nodes.append(made)
        self.renamed.update(zip(node.outputs, made.outputs, strict=True))
