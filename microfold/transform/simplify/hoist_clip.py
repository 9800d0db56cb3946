"""Moves clips up to layers that can run them in their epilogues.

    %a: int8[1,4,4,8] = conv2d(%x, %w) {...}              %a: int8[1,4,4,8] = conv2d(%x, %w) {...}
    %b: int8[16,8] = reshape(%a) {shape=(16, 8)}          %c: int8[1,4,4,8] = clip(%a) {...}
    %y: int8[16,8] = clip(%b) {...}                 ->    %y: int8[16,8] = reshape(%c) {shape=(16, 8)}

Operators that only move elements have the same result if the elements are clipped before: reshapes,
transposes, slices, concatenations, pads (with a clipped fill) and others. A clip moves before them if both
conditions hold:

- every value that they read is constant, or computed by a layer that can take a clip or by another clip;
- no other node reads any of these values.

There the clip is free, or nearly so. All bits stay the same.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value, describe
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.placement.fuse_ops import not_computed, takes_clip, with_step

_OF_ONE = (BroadcastTo, Gather, Pad, Reshape, ResizeNearestNeighbor, StridedSlice, Transpose)


@function_pass(opt_level=1)
def hoist_clip(graph: Graph, context: PassContext) -> Graph:
    """Move clips before the operators between them and the layers that can run them."""
    plan = _Plan(graph, context)
    if not plan.clipped:
        return graph

    def rewrite(site: RewriteSite[None]) -> Replacement:
        node = site.node
        if isinstance(node.op, Clip) and node.operands[0] in plan.moved:
            return site.inputs[0]
        result = node.outputs[0] if node.outputs else None
        clip = plan.clipped.get(result) if result is not None else None
        if clip is None or result is None:
            return None
        if result not in plan.moved:
            (bare,) = site.emit(node.op, *site.inputs, epilogue=site.epilogue)
            return site.builder.emit(clip, [bare], [result.name])
        op = node.op
        if isinstance(op, Pad):
            op = replace(op, fill=float(_clipped(clip, np.array([op.fill]), result.type)[0]))
        inputs = [site.value(index) for index in range(len(node.inputs))]
        for index in _data(node):
            value, array = inputs[index], site.array(node.inputs[index])
            if array is not None and value is not None:
                inputs[index] = site.builder.constant(
                    _clipped(clip, array, value.type), value.type, value.name
                )
        return site.builder.emit(op, inputs, [plan.names.get(result, result.name)])

    return forward_rewrite(graph, rewrite)


class _Plan:
    """Destinations of the clips.

    Attributes:
        clipped: values to clip at the node that computes them, with the clip.
        moved: values of `clipped` that are computed by operators that move elements.
        names: name of the value that takes the place of a clip's result, by the clip's operand.
    """

    def __init__(self, graph: Graph, context: PassContext):
        self.graph = graph
        self.producers, self.uses, self.constants = graph.producers(), graph.use_counts(), graph.constants
        self.clipped: dict[Value, Clip] = {}
        self.moved: set[Value] = set()
        self.names: dict[Value, str] = {}
        for node in graph.nodes:
            if isinstance(node.op, Clip) and not node.epilogue:
                self._plan(node, node.op, context)

    def _plan(self, node: Node, clip: Clip, context: PassContext) -> None:
        pending, layers, moved = [node.operands[0]], list[Value](), list[Value]()
        while pending:
            value = pending.pop()
            inner = self.producers.get(value)
            if inner is not None and self.uses[value] > 1:
                return context.declined(node, f"%{value.name} has other readers")
            if inner is not None and isinstance(inner.op, (*_OF_ONE, Concatenate)) and not inner.epilogue:
                moved.append(value)
                operands = [inner.inputs[index] for index in _data(inner)]
                pending += [v for v in operands if v is not None and v not in self.constants]
            elif inner is not None and (isinstance(inner.op, Clip) or takes_clip(inner)):
                layers.append(value)
            else:
                return context.declined(node, f"no layer that takes a clip computes %{value.name}")
        if not moved or not layers:
            return None
        reason = next(filter(None, (self._not_computed(value, clip, context) for value in layers)), None)
        if reason is not None:
            return context.declined(node, reason)
        context.fired(node, "to " + ", ".join(describe(self.producers[value]) for value in layers))
        self.clipped |= dict.fromkeys([*layers, *moved], clip)
        self.moved.update(moved)
        self.names[node.operands[0]] = node.outputs[0].name
        return None

    def _not_computed(self, value: Value, clip: Clip, context: PassContext) -> str | None:
        """Return the reason if no kernel clips a layer's result."""
        layer = self.producers[value]
        if isinstance(layer.op, Clip):
            return None
        return not_computed(layer, with_step(layer, EpilogueStep(clip), value.name), self.graph, context)


def _data(node: Node) -> tuple[int, ...]:
    """Return the indices of the operands whose elements become elements of the result."""
    return tuple(range(len(node.inputs))) if isinstance(node.op, Concatenate) else (0,)


def _clipped(clip: Clip, array: Array, type: TensorType) -> Array:
    data = array.astype(type.dtype.numpy)
    return clip.reference(Tensor(type.with_shape(data.shape), data))
