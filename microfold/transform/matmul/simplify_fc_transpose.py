"""Folds transposes around fully connected layers into the weights.

    %t: int8[1,4,8,8] = transpose(%x) {permutation=(0, 3, 1, 2)}     %r: int8[1,256] = reshape(%x) {...}
    %r: int8[1,256] = reshape(%t) {shape=(1, 256)}              ->   %y: int8[1,10] = fully_connected(%r, %v)
    %y: int8[1,10] = fully_connected(%r, %w)                         (%v: columns of %w in another order)

A chain of transposes and reshapes before a layer with constant weights permutes the elements of its rows; a
permutation of the weights' columns cancels it. A chain after a layer permutes the elements of each result
row; the rows of the weights, with their biases and scales, are permuted instead, and a reshape produces the
shape. Integers keep their bits. If an input is permuted, float sums are accumulated in another order.

A chain that mixes rows of the batch stays, as does a chain with other readers, which is computed anyway.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.layout.propagation.constants import permuted


@function_pass(opt_level=3)
def simplify_fc_transpose(graph: Graph, context: PassContext) -> Graph:
    """Fold transposes before and after fully connected layers into constant weights."""
    # A chain after one layer may be a chain before another one.
    while True:
        result = forward_rewrite(graph, _Rules(graph, context).table())
        if result is graph:
            return graph
        graph = result


class _Rules:
    def __init__(self, graph: Graph, context: PassContext):
        self.context = context
        ends = {*graph.outputs, *(state.next for state in graph.state)}
        # Values with no other readers than fully connected layers with constant weights, as their input.
        self.inputs = {
            value
            for value, readers in graph.consumers().items()
            if value not in ends and all(_reads_rows(reader, value, graph) for reader in readers)
        }

    def table(self) -> dict[type[Op], Rule[None]]:
        return {FullyConnected: self.front, Transpose: self.behind}

    def front(self, site: RewriteSite[None]) -> Replacement:
        """Fold the chain before a layer."""
        node, last = site.node, site.producer(0)
        weights = site.value(1)
        chain = _chain(site, last)
        if not any(isinstance(step.op, Transpose) for step in chain):
            return None
        assert weights is not None
        if site.array(node.inputs[1]) is None:
            self.context.declined(node, "its weights are not constant")
            return None
        if node.inputs[0] not in self.inputs:
            self.context.declined(node, "its input has other readers: it is computed anyway")
            return None
        source = chain[0].operands[0]
        rows, depth = chain[-1].output.type.shape
        order = _row_order(_positions(chain, source.type).reshape(rows, depth))
        if order is None:
            self.context.declined(node, "the transpose mixes rows of the batch")
            return None
        self.context.fired(node, f"the columns of its weights are permuted to the order of %{source.name}")
        # Input k of the layer was element order[k] of the source's row; now it is element k.
        turned = permuted(site.builder, weights, np.argsort(order), axis=1)
        (flat,) = site.builder.emit(Reshape((rows, depth)), [source], [chain[-1].output.name])
        rest = (site.value(2),) if len(node.inputs) > 2 else ()
        return site.emit(node.op, flat, turned, *rest, epilogue=site.epilogue)

    def behind(self, site: RewriteSite[None]) -> Replacement:
        """Fold the chain from a layer to this transpose."""
        node, before = site.node, site.producer(0)
        chain = [*_chain(site, before), node]
        layer = before if len(chain) == 1 else site.builder.producer(chain[0].operands[0])
        if layer is None or not isinstance(layer.op, FullyConnected) or layer.epilogue or node.epilogue:
            return None
        result = layer.output
        only = site.uses[result] == 1 and site.is_only_reader(0)
        weights, bias = layer.operands[1], layer.operands[2] if len(layer.operands) > 2 else None
        constants = site.builder.constants
        if weights not in constants or (bias is not None and bias not in constants):
            self.context.declined(node, f"weights or bias of fully_connected %{result.name} are not constant")
            return None
        if not only:
            self.context.declined(node, f"%{result.name} has other readers: it is computed anyway")
            return None
        order = _row_order(_positions(chain, result.type).reshape(result.type.shape))
        if order is None:
            self.context.declined(node, "it mixes rows of the batch")
            return None
        self.context.fired(node, f"its order permutes the weights' rows of fully_connected %{result.name}")
        turned = permuted(site.builder, weights, order, axis=0)
        biases = () if bias is None else (permuted(site.builder, bias, order, axis=0),)
        (rows,) = site.builder.emit(layer.op, [layer.inputs[0], turned, *biases], [result.name])
        return site.emit(Reshape(node.output.type.shape), rows)


def _reads_rows(node: Node, value: Value, graph: Graph) -> bool:
    is_layer = isinstance(node.op, FullyConnected) and node.operands.count(value) == 1
    return is_layer and node.inputs[0] is value and graph.array(node.inputs[1]) is not None


def _chain(site: RewriteSite[None], last: Node | None) -> list[Node]:
    """Return the chain of transposes and reshapes up to this node; all before it have one reader."""
    nodes: list[Node] = []
    while last is not None and isinstance(last.op, Transpose | Reshape) and not last.epilogue:
        if nodes and site.uses[last.output] > 1:
            break
        nodes.insert(0, last)
        last = site.builder.producer(last.operands[0])
    return nodes


def _positions(chain: list[Node], source: TensorType) -> Array:
    """Return the position in the source of each element of the chain's result."""
    positions = np.arange(source.size).reshape(source.shape)
    for node in chain:
        positions = np.asarray(node.op.reference(Tensor(source, positions)))
    return positions


def _row_order(positions: Array) -> Array | None:
    """Return the order [depth] of each row's elements if all rows stay and have the same order, else None."""
    rows, depth = positions.shape
    order = positions[0]
    same = np.array_equal(positions, order + depth * np.arange(rows)[:, None])
    return order if same and order.max() < depth else None
