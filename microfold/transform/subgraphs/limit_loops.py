"""Ends loops after a number of iterations that the user specifies.

    %j: int32[], %y: int8[4] = while(%i, %x) {condition="less", body="step"}
->
    %j: int32[], %y: int8[4] = limited_while(%i, %x) {condition="less", body="step", limit=100}

                                                                                       (limit=100)

The pass runs on the imported graph, which is the reference for comparisons. A limit that is never reached
changes nothing; `lower_loops` detects this if it can be proved.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ops.control.control_flow import While
from microfold.ops.control.loop import LimitedWhile
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass


@module_pass(opt_level=0)
class LimitLoops(Struct, frozen=True):
    """Limit for every loop.

    Attributes:
        limit: maximum number of iterations; None leaves all loops unchanged.
    """

    limit: int | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        return with_limited_loops(graph, self.limit, context)


def with_limited_loops(graph: Graph, limit: int | None, context: PassContext) -> Graph:
    """Return the graph with a limit for every loop, also in subgraphs; the same graph without a limit."""
    if limit is None:
        return graph
    context = replace(context, pass_name="limit_loops")
    graph = graph.with_bodies(lambda _, body: with_limited_loops(body, limit, context))
    nodes: list[Node] = []
    for node in graph.nodes:
        if type(node.op) is While:
            context.fired(node, f"it may run {limit} times")
            nodes.append(replace(node, op=LimitedWhile(node.op.condition, node.op.body, limit)))
        else:
            nodes.append(node)
    return graph if nodes == list(graph.nodes) else graph.with_nodes(nodes)
