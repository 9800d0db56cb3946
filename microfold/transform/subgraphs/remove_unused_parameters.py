"""Removes parameters that a subgraph does not read, and the operands of its callers.

    %y: int8[4] = call(%x, %z) {body="f", ...}            %y: int8[4] = call(%x) {body="f", ...}
    subgraph @f = graph @f(%p: int8[4],                   subgraph @f = graph @f(%p: int8[4]) -> (%t) {
                           %q: int8[4]) -> (%t) {   ->      %t: int8[4] = clip(%p) {...}
      %t: int8[4] = clip(%p) {...}                        }
    }

The branches of a condition lose a parameter that neither of them reads. Values that a loop carries count as
results: `remove_unused_outputs` removes them.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from microfold.ir.families import families
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=1)
def remove_unused_parameters(graph: Graph, context: PassContext) -> Graph:
    """Narrow the subgraphs of calls and conditions to the parameters that they read."""
    bodies, nodes = dict(graph.subgraphs), dict[Node, Node]()
    for family in families(graph):
        if not all(isinstance(node.op, Call | If) for node in family.nodes):
            context.declined(f"subgraph @{family.names[0]}", "a loop carries its parameters")
            continue
        unused = set(range(len(bodies[family.names[0]].inputs)))
        for name in family.names:
            read = {*bodies[name].use_counts()}
            unused &= {index for index, value in enumerate(bodies[name].inputs) if value not in read}
        if not unused:
            continue
        for name in family.names:
            inputs = bodies[name].inputs
            for index in sorted(unused):
                context.fired(f"subgraph @{name}", f"it does not read its parameter %{inputs[index].name}")
            kept = tuple(value for index, value in enumerate(inputs) if index not in unused)
            bodies[name] = replace(bodies[name], inputs=kept)
        nodes |= {node: _without(node, unused) for node in family.nodes}
    if not nodes:
        return graph
    return replace(graph, subgraphs=bodies).with_nodes([nodes.get(node, node) for node in graph.nodes])


def _without(node: Node, unused: Collection[int]) -> Node:
    first = 1 if isinstance(node.op, If) else 0  # an operand before the parameters
    return replace(node, inputs=tuple(v for i, v in enumerate(node.inputs) if i - first not in unused))
