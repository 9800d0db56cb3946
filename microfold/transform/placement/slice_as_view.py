"""Lets readers of slices read the memory of the sliced value.

    %a: int8[1,24] = relu(%x) {...}
    %b: int8[1,8] = strided_slice(%a) {begin=(0, 16), size=(1, 8), strides=(1, 1)}
->
    %a: int8[1,24] = relu(%x) {...}
    %b: int8[1,8] = slice_view(%a) {begin=(0, 16), size=(1, 8)}

The slice must be one block of memory of a computed value, and must start at a multiple of the arena's
alignment.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.in_place import updated_states
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.views import ALIGNMENT, Views
from microfold.ops.movement.slice_view import SliceView, is_block
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=1)
def slice_as_view(graph: Graph, context: PassContext) -> Graph:
    """Replace slices of computed values by views of them."""
    views = Views(graph)
    # The next value of a state that is updated in place may be read there by views.
    updated = updated_states(graph)
    moved = [state.next for state in graph.state if state.next not in updated]
    ends = {views[value].root for value in (*graph.outputs, *moved)}
    computed = {value for node in graph.nodes for value in node.outputs}

    def look(site: RewriteSite[None]) -> tuple[Value, ...] | None:
        node = site.node
        assert isinstance(node.op, StridedSlice)
        reason = _refusal(node, views[node.operands[0]].root, computed, ends)
        if reason is not None:
            context.declined(node, reason)
            return None
        context.fired(node, f"its bytes are a block of %{node.operands[0].name}")
        return site.emit(SliceView(node.op.begin, node.op.size), site.inputs[0])

    return forward_rewrite(graph, {StridedSlice: look})


def _refusal(node: Node, root: Value, computed: set[Value], ends: set[Value]) -> str | None:
    assert isinstance(node.op, StridedSlice)
    x, result = node.operands[0].type, node.output
    if node.epilogue:
        return "it has an epilogue"
    if any(stride != 1 and size > 1 for stride, size in zip(node.op.strides, node.op.size, strict=True)):
        return "it skips or reverses elements"
    if not is_block(x.shape, node.op.size):
        return f"{list(node.op.size)} of {x} is not one block"
    start = SliceView(node.op.begin, node.op.size).view_start(x) * x.dtype.itemsize
    if start % ALIGNMENT:
        return f"views start at multiples of {ALIGNMENT} bytes; this one would start at {start}"
    if root not in computed:
        return f"no node computes %{root.name}"
    if root in ends or result in ends:
        return f"%{(root if root in ends else result).name} leaves the graph"
    return None
