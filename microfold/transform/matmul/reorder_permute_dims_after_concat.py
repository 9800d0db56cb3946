"""Replaces transposes of all parts of a concatenation by one transpose of the result.

    %a: int8[1,2,4,4] = transpose(%x) {permutation=(0, 3, 1, 2)}
    %b: int8[1,3,4,4] = transpose(%y) {permutation=(0, 3, 1, 2)}
    %z: int8[1,5,4,4] = concatenate(%a, %b) {axis=1}
        ->
    %c: int8[1,4,4,5] = concatenate(%x, %y) {axis=3}
    %z: int8[1,5,4,4] = transpose(%c) {permutation=(0, 3, 1, 2)}

The number of moved elements stays the same, in one call. Constant parts are transposed at compile time. A
transpose with other readers is computed anyway and therefore stays. The name is from TVM.
`optimize_layout_transform` also does this and propagates the transpose further, but it makes other changes.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=3)
def reorder_permute_dims_after_concat(graph: Graph, context: PassContext) -> Graph:
    """Move equal transposes of all parts after the concatenation."""

    def reorder(site: RewriteSite[None]) -> tuple[Value, ...] | None:
        node, op = site.node, site.node.op
        assert isinstance(op, Concatenate)
        computed = [i for i, value in enumerate(node.inputs) if site.array(value) is None]
        turns = [_permutation(site, index) for index in computed]
        if not any(turns):
            return None
        if len(set(turns)) > 1:
            context.declined(node, "its parts are not all transposed in the same way")
            return None
        if any(step.operands for step in node.epilogue):
            context.declined(node, "its epilogue has operands, which are not transposed")
            return None
        # A part that is read twice is transposed only once.
        readers = {node.inputs[index]: node.inputs.count(node.inputs[index]) for index in computed}
        if len(readers) < 2:
            context.declined(node, "only one part is transposed, so that no transpose would be saved")
            return None
        if any(site.uses[value] != count for value, count in readers.items() if value is not None):
            context.declined(node, "a transposed part has other readers: it is computed anyway")
            return None
        permutation = turns[0]
        assert permutation is not None
        back = tuple(int(axis) for axis in np.argsort(permutation))
        parts: list[Value] = []
        for index, value in enumerate(node.inputs):
            assert value is not None
            array, producer = site.array(value), site.producer(index)
            if array is not None:
                turned = np.ascontiguousarray(array.transpose(back))
                type = value.type.with_shape(turned.shape)
                parts.append(site.builder.constant(turned, type, value.name))
            elif producer is not None:
                parts.append(producer.operands[0])
        context.fired(node, f"all its parts are transposed by {permutation}")
        names = [node.output.name]
        (joined,) = site.builder.emit(Concatenate(permutation[op.axis]), parts, names, site.epilogue)
        return site.emit(Transpose(permutation), joined)

    return forward_rewrite(graph, {Concatenate: reorder})


def _permutation(site: RewriteSite[None], index: int) -> tuple[int, ...] | None:
    """Return the permutation of a transposed operand, or None if it has none or a scale for each channel."""
    producer = site.producer(index)
    if producer is None or not isinstance(producer.op, Transpose) or producer.epilogue:
        return None
    quant = producer.output.type.quant
    return producer.op.permutation if quant is None or quant.axis is None else None
