"""Merges adjacent regions of the same external code generator.

    %a: int8[4] = compiler_end(%p) {compiler="npu", composite="first"}
    %b: int8[4] = compiler_begin(%a) {compiler="npu"}
    %q: int8[4] = clip(%b) {...}
    %y: int8[4] = compiler_end(%q) {compiler="npu", composite="second"}
        ->
    %q: int8[4] = clip(%p) {...}
    %y: int8[4] = compiler_end(%q) {compiler="npu"}

Only code generators that accept regions of several matches get merged regions. Two regions stay separate if a
path leads from one through an outside node to the other: the merged region would have to run both before and
after that node.
"""

from __future__ import annotations

from microfold.analysis.compiler_regions import compiler_regions, has_detour
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node, rewire
from microfold.ir.rewrite import remove_dead_nodes
from microfold.ops.external.compiler_region import CompilerBegin, CompilerEnd
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0)
def merge_compiler_regions(graph: Graph, context: PassContext) -> Graph:
    """Merge adjacent regions of the code generators that request it."""
    merging = {external.name for external in context.externals if external.merges}
    if not merging:
        return graph
    producers = graph.producers()
    regions = [region for region in compiler_regions(graph) if region.compiler in merging]
    unit = {node: set(region.members) for region in regions for node in region.members}
    compiler = {node: region.compiler for region in regions for node in region.members}
    merged: set[Node] = set()
    for node in graph.nodes:
        end = producers.get(node.inputs[0]) if isinstance(node.op, CompilerBegin) and node.inputs[0] else None
        if end is None or end not in unit or node not in unit or compiler[end] != compiler[node]:
            continue
        first, second = unit[end], unit[node]
        if first is not second:
            if has_detour(graph, first, second, unit):
                context.declined(
                    node, f"a path from {end.output!r} leads back through nodes outside the region"
                )
                continue
            context.fired(node, f"{compiler[node]} computes both sides of it")
            unit.update(dict.fromkeys(first | second, first | second))
        merged.add(node)
    return _without(graph, merged, unit) if merged else graph


def _without(graph: Graph, merged: set[Node], unit: dict[Node, set[Node]]) -> Graph:
    """Return the graph without the boundaries that are now inside a region."""
    producers = graph.producers()
    grown = {id(unit[node]) for node in merged}
    replaced: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in merged:
            (boundary,) = node.operands
            replaced[node.output] = producers[boundary].operands[0]
            continue
        if (
            isinstance(node.op, CompilerEnd)
            and node in unit
            and id(unit[node]) in grown
            and node.op.composite
        ):
            (value,) = rewire(node, replaced).operands
            nodes.append(make_node(CompilerEnd(node.op.compiler), [value], [node.output.name]))
            replaced[node.output] = nodes[-1].output
            continue
        nodes.append(rewire(node, replaced))
    return remove_dead_nodes(graph.with_nodes(nodes, replaced=replaced))
