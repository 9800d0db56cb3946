"""Lets the parts of a concatenation be computed directly in the memory of its result.

    %a: int8[1,8] = clip(%x) {...}                 %a: int8[1,8] = clip(%x) {...}
    %b: int8[1,16] = relu(%y) {...}           ->   %b: int8[1,16] = relu(%y) {...}
    %c: int8[1,24] = concatenate(%a, %b) {...}     %c: int8[1,24] = concatenate_view(%a, %b) {...}

The parts must be whole blocks of the result (all axes before the concatenated one have extent 1) and start at
multiples of the arena's alignment. Some parts cannot be computed there, for example an input of the graph or
a part of two concatenations. They are copied, as the concatenation would have done.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node
from microfold.ir.views import ALIGNMENT, Views
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.concatenate_view import ConcatenateView
from microfold.ops.movement.copy import Copy
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=1)
def concat_as_view(graph: Graph, context: PassContext) -> Graph:
    """Replace concatenations by views of their parts if that saves a copy."""
    views = Views(graph)
    # No output or next state becomes a part, so that this set stays valid while views are added.
    ends = {views[value].root for value in (*graph.outputs, *(state.next for state in graph.state))}
    nodes: list[Node] = []
    for node in graph.nodes:
        made = [node]
        if isinstance(node.op, Concatenate):
            parts = _parts(node, views, ends)
            if isinstance(parts, str):
                context.declined(node, parts)
            else:
                context.fired(
                    node, f"{len(node.inputs) - len(parts)} of {len(node.inputs)} parts need no copy"
                )
                made = _join(node, parts)
                # The parts of a view cannot be parts of another one.
                for each in made:
                    views.add(each)
        nodes += made
    return replace(graph, nodes=tuple(nodes)) if nodes != list(graph.nodes) else graph


def _parts(node: Node, views: Views, ends: Collection[Value]) -> dict[int, str] | str:
    """Return the operands that must be copied, with the reasons; or why the node stays unchanged."""
    assert isinstance(node.op, Concatenate)
    if node.epilogue:
        return "it has an epilogue"
    if math.prod(node.output.type.shape[: node.op.axis]) != 1:
        return f"its parts are not whole blocks of {node.output.type}"
    starts = itertools.accumulate((value.type.nbytes for value in node.operands[:-1]), initial=0)
    unaligned = [start for start in starts if start % ALIGNMENT]
    if unaligned:
        return f"parts must start at multiples of {ALIGNMENT} bytes; one starts at {unaligned[0]}"
    if views[node.output].root in ends:
        return "its result leaves the graph"
    copied: dict[int, str] = {}
    roots: set[Value] = set()
    for index, value in enumerate(node.operands):
        root = views[value].root
        reason = views.refusal(value)
        if reason is None and root in ends:
            reason = f"%{value.name} leaves the graph"
        if reason is None and root in roots:
            reason = f"%{value.name} is already a part"
        if reason is not None:
            copied[index] = reason
        roots.add(root)
    if len(copied) == len(node.operands):
        return "; ".join(dict.fromkeys(copied.values()))
    return copied


def _join(node: Node, copied: dict[int, str]) -> list[Node]:
    assert isinstance(node.op, Concatenate)
    copies: list[Node] = []
    inputs = list(node.operands)
    for index in copied:
        copies.append(make_node(Copy(), [inputs[index]], [f"{inputs[index].name}_part"]))
        inputs[index] = copies[-1].output
    return [*copies, Node(ConcatenateView(node.op.axis), tuple(inputs), node.outputs)]
