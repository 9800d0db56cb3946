"""Lets readers of loop invariants read the value before the loop.

    %w = constant int8[4] [...]
    %j: int32[], %y: int8[4], %v: int8[4] = while(%i, %x, %w) {...}
    subgraph @step = graph @step(%n, %p, %q: int8[4]) -> (%m, %t, %q) {
      %t: int8[4] = add(%p, %q)
      ...
->
    (readers of %v read %w)
    subgraph @step = graph @step(%n, %p, %q: int8[4]) -> (%m, %t, %q) {
      %c = constant int8[4] [...]
      %t: int8[4] = add(%p, %c)
      ...

Constants move into the subgraphs, where passes and kernels can see them. `remove_unused_outputs` then removes
values that a loop carries without need.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from microfold.ir.families import Family, families
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, rewire
from microfold.ir.types import Array
from microfold.ops.control.control_flow import While
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0, mandatory=True)
def loop_invariants(graph: Graph, context: PassContext) -> Graph:
    """Move invariant results of loops out of them, and constants into them."""
    uses = graph.use_counts()
    replaced: dict[Value, Value] = {}
    bodies = dict(graph.subgraphs)
    for family in families(graph):
        op = family.nodes[0].op
        if not isinstance(op, While):
            continue
        if any(node.op != op for node in family.nodes):
            context.declined(family.nodes[0], "other operators run its subgraphs with different attributes")
            continue
        body = graph.subgraphs[op.body]
        same = [i for i, value in enumerate(body.inputs) if body.outputs[i] is value]
        if not same:
            context.declined(family.nodes[0], "each iteration computes all values that it carries")
        for node in family.nodes:
            for index in same[1:] if node.epilogue and same[:1] == [0] else same:
                operand = node.inputs[index]
                if uses[node.outputs[index]] and operand is not None:
                    context.fired(node, f"no iteration changes %{node.outputs[index].name}")
                    replaced[node.outputs[index]] = operand
        for index in same:
            array = _common_constant(graph, family, index)
            if array is None:
                name = body.inputs[index].name
                context.declined(f"subgraph @{body.name}", f"%{name} is not the same constant for all loops")
            else:
                for name in family.names:
                    bodies[name] = _with_constant(bodies[name], index, array, context)
    changed = any(body is not graph.subgraphs[name] for name, body in bodies.items())
    if not replaced and not changed:
        return graph
    nodes = [rewire(node, replaced) for node in graph.nodes]
    return replace(graph, subgraphs=bodies).with_nodes(nodes, replaced=replaced)


def _common_constant(graph: Graph, family: Family, index: int) -> Array | None:
    """Return the constant that an operand of all nodes is; None if it is computed or differs."""
    arrays = [graph.array(node.inputs[index]) for node in family.nodes]
    first = arrays[0]
    if first is None or any(a is None or a.tobytes() != first.tobytes() for a in arrays):
        return None
    return first


def _with_constant(body: Graph, index: int, array: Array, context: PassContext) -> Graph:
    """Return a subgraph with a constant instead of a parameter; the same subgraph if no node reads it."""
    parameter = body.inputs[index]
    constant = replace(parameter)
    nodes = _reading(body.nodes, {parameter: constant})
    if all(one is other for one, other in zip(nodes, body.nodes, strict=True)):
        return body
    context.fired(f"subgraph @{body.name}", f"%{parameter.name} is the same constant in all iterations")
    return body.with_nodes(nodes, constants={**body.constants, constant: array})


def _reading(nodes: tuple[Node, ...], replaced: Mapping[Value, Value]) -> list[Node]:
    return [rewire(node, replaced) for node in nodes]
