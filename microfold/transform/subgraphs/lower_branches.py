"""Gives each condition separate copies of its branches, with its constant operands inside.

    %y: int8[4], %u: int8[4] = if(%c, %x, %w) {then="f", otherwise="h"}
    %z: int8[4], %v: int8[4] = if(%d, %x, %w) {then="f", otherwise="h"}
->
    %y: int8[4] = if(%c, %x) {then="f_1", otherwise="h_1"}
    %z: int8[4] = if(%d, %x) {then="f_2", otherwise="h_2"}

Code generation gives a value one address, and therefore requires one node that computes it. Values that both
branches return unchanged, here %u and %v, are read directly from the operands. All bits stay the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, rewire
from microfold.ir.outline import fresh_name
from microfold.ops.control.control_flow import If
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.subgraphs.lower_loops import constant_operands, own_copy


@function_pass(opt_level=0, mandatory=True)
def lower_branches(graph: Graph, context: PassContext) -> Graph:
    """Copy branches that are shared, receive constants, or return operands unchanged."""
    users = Counter(name for node in graph.nodes for name in node.op.bodies)
    bodies = dict(graph.subgraphs)
    replaced: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in (rewire(node, replaced) for node in graph.nodes):
        op = node.op
        if not isinstance(op, If):
            nodes.append(node)
            continue
        operands = node.inputs[1:]
        constants = constant_operands(graph, operands, range(len(operands)))
        same = {} if node.epilogue else _handed_on([graph.subgraphs[name] for name in op.bodies])
        if not constants and not same and all(users[name] == 1 for name in op.bodies):
            nodes.append(node)
            continue
        replaced |= {node.outputs[i]: v for i, k in same.items() if (v := operands[k]) is not None}
        results = [i for i in range(len(node.outputs)) if i not in same]
        if not results:
            context.fired(node, "both branches only return their operands")
            continue
        kept = [i for i in range(len(operands)) if i not in constants]
        names: list[str] = []
        for name in op.bodies:
            body = graph.subgraphs[name]
            copy = own_copy(body, kept, [body.outputs[i] for i in results], constants)
            names.append(fresh_name(name, bodies))
            bodies[names[-1]] = replace(copy, name=names[-1])
        context.fired(node, f"its branches are @{' and @'.join(names)}")
        nodes.append(
            replace(
                node,
                op=If(names[0], names[1], tuple(op.results[i] for i in results)),
                inputs=(node.inputs[0], *(operands[i] for i in kept)),
                outputs=tuple(node.outputs[i] for i in results),
            )
        )
    if nodes == list(graph.nodes):
        return graph
    used = {name for node in nodes for name in node.op.bodies}
    kept_bodies = {name: body for name, body in bodies.items() if name in used}
    return replace(graph, subgraphs=kept_bodies).with_nodes(nodes, replaced=replaced)


def _handed_on(branches: Sequence[Graph]) -> dict[int, int]:
    """Return (index of a result, index of a parameter) for results that are one parameter in all branches."""
    first, *others = branches
    places = {value: index for index, value in enumerate(first.inputs)}
    return {
        i: k
        for i, value in enumerate(first.outputs)
        if (k := places.get(value)) is not None and all(g.outputs[i] is g.inputs[k] for g in others)
    }
