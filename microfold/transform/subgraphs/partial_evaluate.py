"""Resolves conditions and unrolls loops that depend only on constants.

    %c = constant bool[] [true]
    %y: int8[4] = if(%c, %x) {then="f", ...}            ->  %y: int8[4] = call(%x) {body="f", ...}

    %i = constant int32[] [0]                               %i = constant int32[] [0]
    %j: int32[], %y: int8[4] = while(%i, %x) {              %a: int32[], %b: int8[4] = call(%i, %x) {...}
      condition="less_than_2", body="step"              ->  %j: int32[], %y: int8[4] = call(%a, %b) {...}
    }

A loop becomes a sequence of calls if its trip count is known (see `analysis.trip_count`), unless that would
grow the graph beyond `max_nodes` nodes. `inline` then replaces the calls by the bodies. All bits stay the
same. For conditions on computed values see `if_conversion`.
"""

from __future__ import annotations

from msgspec import Struct

from microfold.analysis.ranges import NO_RANGES
from microfold.analysis.trip_count import stops_early, trip_count
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If, While
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0, mandatory=True)
class PartialEvaluate(Struct, frozen=True):
    """Replacement of constant conditions and loops by calls.

    Attributes:
        max_nodes: maximum number of nodes of all iterations of a loop together; a single iteration may have
            any number. None: the limit of the context.
    """

    max_nodes: int | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        def choose(site: RewriteSite[None]) -> tuple[Value, ...] | None:
            op = site.node.op
            assert isinstance(op, If)
            condition = site.array(site.node.inputs[0])
            if condition is None:
                context.declined(site.node, "its condition is computed")
                return None
            name = op.then if condition.item() else op.otherwise
            context.fired(site.node, f"its condition is {bool(condition.item())}".lower())
            return site.emit(Call(name, op.results), *site.inputs[1:], epilogue=site.epilogue)

        def unroll(site: RewriteSite[None]) -> tuple[Value, ...] | None:
            op, node = site.node.op, site.node
            assert isinstance(op, While)
            if node.epilogue:
                context.declined(node, "it has an epilogue")
                return None
            body = graph.subgraphs[op.body]
            size = max(1, _size(body))
            limit = max(1, (context.unroll if self.max_nodes is None else self.max_nodes) // size)
            count = trip_count(node, graph, NO_RANGES, limit)
            trips = count.exact
            if trips is None:
                context.declined(node, count.reason)
                return None
            if trips > limit:
                context.declined(
                    node, f"it runs {trips} times; at most {limit} copies of its nodes are allowed"
                )
                return None
            if stops_early(node, count):
                context.declined(node, "it is stopped before it ends")
                return None
            context.fired(node, f"it runs {trips} times over the {size} nodes of @{op.body}")
            names = [value.name for value in node.outputs]
            current = tuple(site.builder.value(x) for x in site.inputs if x is not None)
            for _ in range(trips):
                current = site.builder.emit(Call(op.body, body.signature.outputs), current, names)
            return current

        return forward_rewrite(graph, {If: choose, While: unroll})


def _size(graph: Graph) -> int:
    """Return the number of nodes of a graph, including all subgraphs that it runs."""
    return sum(1 + sum(_size(graph.subgraphs[name]) for name in node.op.bodies) for node in graph.nodes)
