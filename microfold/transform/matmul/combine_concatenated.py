"""Combines layers whose results are concatenated into one layer.

    %a: int8[1,8,8,3] = conv2d(%x, %v) {...}
    %b: int8[1,8,8,5] = conv2d(%x, %w) {...}
    %y: int8[1,8,8,8] = concatenate(%a, %b) {axis=3}    ->    %y: int8[1,8,8,8] = conv2d(%x, %vw) {...}

The layers must be convolutions with equal windows, or fully connected layers, of one value. Their results may
only be read by one concatenation along the channels. The concatenated filters then compute the result
directly. No slices or copies remain, so that the rewrite is always profitable. (`combine_parallel_conv2d` and
`combine_parallel_dense` also handle other readers, at the cost of slices.) Every filter keeps its weights, so
that all bits stay the same. Equal clips after the layers become one clip. Reshapes that keep the channels
together also become one:

    %r: float32[1,4,3] = reshape(%a) {...}
    %s: float32[1,4,5] = reshape(%b) {...}          %c: float32[4,8] = fully_connected(%x, %vw)
    %y: float32[1,4,8] = concatenate(%r, %s)  ->    %y: float32[1,4,8] = reshape(%c) {...}
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from microfold.ir.graph import Graph
from microfold.ir.layout import NHWC
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.matmul.parallel.branches import (
    Branch,
    BranchWeights,
    concatenated_weights,
    emit_combined,
    operands_are_constant,
)


@function_pass(opt_level=3)
def combine_concatenated(graph: Graph, context: PassContext) -> Graph:
    """Concatenate the weights of layers instead of their results."""
    producers, uses = graph.producers(), graph.use_counts()

    def branch(value: Value) -> Branch | None:
        """Return the branch that computes a part, or None if it is no suitable layer."""
        node = producers.get(value)
        view = node if node is not None and _keeps_channels(node) else None
        if view is not None:
            node = producers.get(view.operands[0])
        clip = node if node is not None and isinstance(node.op, Clip) else None
        if clip is not None:
            node = producers.get(clip.operands[0])
        inner = [inner for inner in (node, clip, view) if inner is not None]
        if node is None or any(each.epilogue or uses[each.outputs[0]] > 1 for each in inner):
            return None
        return Branch(node, clip) if _is_layer(node, graph) else None

    def combine(site: RewriteSite[None]) -> Replacement:
        node = site.node
        assert isinstance(node.op, Concatenate)
        if node.epilogue or node.op.axis != node.output.type.rank - 1:
            return None
        branches = [branch(value) for value in node.operands]
        rows = [
            [*row] for _, row in groupby(range(len(branches)), lambda index: _key(branches[index], index))
        ]
        parts: list[Value] = []
        for row in rows:
            group = [found for found in (branches[index] for index in row) if found is not None]
            combined = concatenated_weights(group, graph, axis=0) if len(group) > 1 else ""
            if isinstance(combined, BranchWeights):
                context.fired(node, f"one {group[0].node.op.name} computes {_names(group)}")
                parts.append(_emit(site, group, combined, alone=len(row) == len(branches)))
                continue
            if combined:
                context.declined(node, f"{_names(group)}: {combined}")
            parts += [value for index in row if (value := site.value(index)) is not None]
        if len(parts) == len(branches):
            return None
        return parts[0] if len(parts) == 1 else site.emit(node.op, *parts)

    return forward_rewrite(graph, {Concatenate: combine})


def _keeps_channels(node: Node) -> bool:
    """Return whether a node is a reshape that keeps the last axis."""
    if not isinstance(node.op, Reshape):
        return False
    return node.operands[0].type.shape[-1:] == node.output.type.shape[-1:] != ()


def _is_layer(node: Node, graph: Graph) -> bool:
    if not operands_are_constant(node, graph):
        return False
    if isinstance(node.op, Conv2D):
        is_grouped = node.operands[1].type.shape[3] != node.operands[0].type.shape[3]
        return node.op.layout == NHWC and not is_grouped
    return isinstance(node.op, FullyConnected)


def _key(branch: Branch | None, index: int) -> object:
    """Return a key that is equal for adjacent branches that can be combined."""
    if branch is None:
        return index
    node, clip = branch.node, branch.clip
    weights = node.operands[1].type
    return node.op, node.inputs[0], clip.op if clip is not None else None, weights.dtype, weights.shape[1:]


def _names(group: Sequence[Branch]) -> str:
    return ", ".join(f"%{branch.node.output.name}" for branch in group)


def _emit(site: RewriteSite[None], group: Sequence[Branch], weights: BranchWeights, *, alone: bool) -> Value:
    """Emit the combined layer. It gets the concatenation's name if it is the only part."""
    image = group[0].node.operands[0]
    name = site.node.output.name if alone else f"{group[0].output.name}_combined"
    whole = emit_combined(
        site.builder, group, site.builder.value(site.replaced.get(image, image)), weights, name
    )
    shape = (*site.node.output.type.shape[:-1], whole.type.shape[-1])
    if whole.type.shape == shape:
        return whole
    (view,) = site.builder.emit(Reshape(shape), [whole], [name])
    return view
