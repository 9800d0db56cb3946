"""Reads slices of a concatenation directly from the concatenated parts.

    %c: int8[1,8,8,12] = concatenate(%a, %b) {axis=3}
    %y: int8[1,8,8,4] = strided_slice(%c) {begin=(0, 0, 0, 0), size=(1, 8, 8, 4), ...}    ->    %a

%a has 4 channels, therefore it equals the slice. A slice of a larger part stays a slice, but reads the part.
The concatenation disappears if only slices read it. Elements are only moved, so that all bits stay the same.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=3)
def slice_through_concatenate(graph: Graph, context: PassContext) -> Graph:
    """Let slices read the parts of concatenations."""

    starts: dict[Node, list[int]] = {}

    def rewrite(site: RewriteSite[None]) -> Replacement:
        node, whole = site.node, site.producer(0)
        op = node.op
        assert isinstance(op, StridedSlice)
        if whole is None or not isinstance(whole.op, Concatenate):
            return None
        if node.epilogue or whole.epilogue:
            context.declined(node, f"it or concatenate %{whole.output.name} has an epilogue")
            return None
        axis = whole.op.axis
        if whole not in starts:
            extents = (part.type.shape[axis] for part in whole.operands)
            starts[whole] = [*accumulate(extents, initial=0)]
        # Indices of the parts that hold the first and the last element that the slice reads.
        ends = op.begin[axis], op.begin[axis] + (op.size[axis] - 1) * op.strides[axis]
        first, last = (bisect_right(starts[whole], end) - 1 for end in ends)
        if first == last:
            part = whole.operands[first]
            begin = (*op.begin[:axis], op.begin[axis] - starts[whole][first], *op.begin[axis + 1 :])
            context.fired(node, f"it is in %{part.name}")
            is_whole = op.size == part.type.shape and all(stride == 1 for stride in op.strides)
            return part if is_whole else site.emit(replace(op, begin=begin), part)
        context.declined(node, f"it reads several parts of %{whole.output.name}")
        return None

    return forward_rewrite(graph, {StridedSlice: rewrite})
