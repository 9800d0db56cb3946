"""Marks the nodes that external code generators can compute.

    %y: int8[1,8,8,4] = conv2d(%x, %w, %b) {...}
        ->
    %x#1: int8[1,8,8,4] = compiler_begin(%x) {compiler="cmsis-nn"}
    %y: int8[1,8,8,4] = conv2d(%x#1, %w, %b) {...}
    %y#1: int8[1,8,8,4] = compiler_end(%y) {compiler="cmsis-nn", composite="conv2d"}

`PassContext.externals` lists the code generators. Every match of one of their patterns becomes a separate
region. Constants belong to the region that reads them. The code generator that was named first has priority
over the whole graph. Within a code generator the order of its table decides: longer patterns come before
their parts.
"""

from __future__ import annotations

from microfold.analysis.compiler_regions import compiler_regions
from microfold.ir.composite import Composite, find_composites
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node, rewire
from microfold.ops.control.call import Call
from microfold.ops.external.compiler_region import CompilerBegin, CompilerEnd
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass


@module_pass(opt_level=0)
def annotate_target(graph: Graph, context: PassContext) -> Graph:
    """Put `compiler_begin` and `compiler_end` around every match, except inside existing regions."""
    taken = {node.op.body for node in graph.nodes if isinstance(node.op, Call) and node.op.compiler}
    annotated = graph.with_bodies(
        lambda name, body: body if name in taken else annotate_target.transform(body, context)
    )
    return _annotate(annotated, context)


def _annotate(graph: Graph, context: PassContext) -> Graph:
    owner = {node: found for found in _composites(graph, context) for node in found.nodes}
    if not owner:
        return graph
    replaced: dict[Value, Value] = {}
    consumers, ends = graph.consumers(), {*graph.outputs, *(state.next for state in graph.state)}
    begun: dict[Composite, dict[Value, Value]] = {found: {} for found in owner.values()}
    nodes: list[Node] = []
    for node in graph.nodes:
        found = owner.get(node)
        if found is None:
            nodes.append(rewire(node, replaced))
            continue
        inside = {value for member in found.nodes for value in member.outputs}
        begins = begun[found]
        for value in dict.fromkeys(node.operands):
            if value not in inside and value not in graph.constants and value not in begins:
                outer = replaced.get(value, value)
                nodes.append(make_node(CompilerBegin(found.owner), [outer], [value.name]))
                begins[value] = nodes[-1].output
        nodes.append(rewire(node, begins))
        for value in node.outputs:
            outside = value in ends or any(owner.get(n) is not found for n in consumers.get(value, ()))
            if outside or node is found.nodes[-1]:
                end = CompilerEnd(found.owner, found.entry.name)
                nodes.append(make_node(end, [value], [value.name]))
                replaced[value] = nodes[-1].output
    return graph.with_nodes(nodes, replaced=replaced)


def _composites(graph: Graph, context: PassContext) -> list[Composite]:
    """Return disjoint matches, without nodes that already belong to a code generator."""
    tables = [(external.name, external.patterns) for external in context.externals]
    taken = [node for node in graph.nodes if isinstance(node.op, Call) and node.op.compiler]
    taken += [node for region in compiler_regions(graph) for node in region.members]
    found = find_composites(graph, tables, taken=taken, declined=context.declined)
    for composite in found:
        context.fired(composite.nodes[-1], f"{composite.owner} computes it: {composite.entry.name}")
    return found
