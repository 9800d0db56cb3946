"""Removes results of subgraphs that no caller reads, and the nodes that compute only them.

    %y: int8[4], %z: int8[4] = call(%x) {...}             %y: int8[4] = call(%x) {...}
    subgraph @f = graph @f(%p: int8[4]) -> (%t, %u) {     subgraph @f = graph @f(%p: int8[4]) -> (%t) {
      %t: int8[4] = clip(%p) {...}                  ->      %t: int8[4] = clip(%p) {...}
      %u: int8[4] = logistic(%p)                          }
    }

A loop loses a carried value if neither its other results nor its condition depend on it. A result with an
epilogue stays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from microfold.ir.families import Family, carried, families
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import remove_dead_nodes
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If, While
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass


@module_pass(opt_level=1)
def remove_unused_outputs(graph: Graph, context: PassContext) -> Graph:
    """Narrow subgraphs to the results that their callers read, outer subgraphs first."""
    while (narrowed := _narrow(graph, context)) is not graph:
        graph = narrowed
    return graph.with_bodies(lambda _, body: remove_unused_outputs.transform(body, context))


@dataclass
class _Narrower:
    """New subgraphs, and new nodes that run them."""

    bodies: dict[str, Graph]
    context: PassContext
    nodes: dict[Node, Node] = field(default_factory=dict[Node, Node])

    def results(self, family: Family, used: Collection[int]) -> None:
        """Narrow the results of calls and conditions."""
        for name in family.names:
            body = self.bodies[name]
            for index, value in enumerate(body.outputs):
                if index not in used:
                    self.context.fired(f"subgraph @{name}", f"no caller reads its result %{value.name}")
            self.bodies[name] = remove_dead_nodes(replace(body, outputs=_only(body.outputs, used)))
        for node in family.nodes:
            assert isinstance(node.op, Call | If)
            results = tuple(t for index, t in enumerate(node.op.results) if index in used)
            op = replace(node.op, results=results)
            self.nodes[node] = replace(node, op=op, outputs=_only(node.outputs, used))

    def loop(self, family: Family, used: Collection[int]) -> None:
        """Narrow the carried values of loops that run the same subgraphs."""
        op = family.nodes[0].op
        assert isinstance(op, While)
        for name in family.names:
            body = self.bodies[name]
            outputs = _only(body.outputs, used) if name == op.body else body.outputs
            body = remove_dead_nodes(replace(body, outputs=outputs))
            self.bodies[name] = replace(body, inputs=_only(body.inputs, used))
        for index, value in enumerate(family.nodes[0].outputs):
            if index not in used:
                self.context.fired(family.nodes[0], f"no node depends on its result %{value.name}")
        for node in family.nodes:
            inputs = tuple(v for index, v in enumerate(node.inputs) if index in used)
            self.nodes[node] = replace(node, inputs=inputs, outputs=_only(node.outputs, used))


def _narrow(graph: Graph, context: PassContext) -> Graph:
    """Run one round. A narrower loop may leave results of other loops unread."""
    narrower, read = _Narrower(dict(graph.subgraphs), context), graph.use_counts()
    for family in families(graph):
        used = {index for node in family.nodes for index, v in enumerate(node.outputs) if read[v]}
        used |= {0 for node in family.nodes if node.epilogue}
        first = family.nodes[0]
        count = len(first.outputs)
        if all(isinstance(node.op, Call | If) for node in family.nodes):
            if len(used) < count:
                narrower.results(family, used)
        elif isinstance(first.op, While) and all(node.op == first.op for node in family.nodes):
            condition, body = (graph.subgraphs[name] for name in first.op.bodies)
            used = carried(condition, body, used)
            if len(used) < count:
                narrower.loop(family, used)
        else:
            context.declined(f"subgraph @{family.names[0]}", "a loop and another node run it")
    if not narrower.nodes:
        return graph
    nodes = [narrower.nodes.get(node, node) for node in graph.nodes]
    return replace(graph, subgraphs=narrower.bodies).with_nodes(nodes)


def _only(values: tuple[Value, ...], used: Collection[int]) -> tuple[Value, ...]:
    return tuple(value for index, value in enumerate(values) if index in used)
