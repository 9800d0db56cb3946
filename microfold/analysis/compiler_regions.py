"""Regions of an annotated graph: the nodes between `compiler_begin` and `compiler_end`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ops.external.compiler_region import CompilerBegin, CompilerEnd


class CompilerRegion(Struct, frozen=True, eq=False):
    """Nodes for one external code generator.

    Attributes:
        composite: name of the pattern that the nodes match; empty if they match several.
        nodes: nodes in topological order, without the boundaries.
        begins, ends: boundaries of the region.
    """

    compiler: str
    composite: str
    nodes: tuple[Node, ...]
    begins: tuple[Node, ...]
    ends: tuple[Node, ...]

    @property
    def members(self) -> tuple[Node, ...]:
        """Nodes and boundaries."""
        return (*self.begins, *self.nodes, *self.ends)


def compiler_regions(graph: Graph) -> list[CompilerRegion]:
    """Return all regions, in the order of their first ends. Parts that share a node are one region."""
    producers = graph.producers()
    region_of: dict[Node, set[Node]] = {}
    for end in graph.nodes:
        if not isinstance(end.op, CompilerEnd):
            continue
        members = {end}
        pending = [value for value in end.operands if value in producers]
        while pending:
            node = producers[pending.pop()]
            if node not in members:
                members.add(node)
                if not isinstance(node.op, CompilerBegin):
                    pending += [value for value in node.operands if value in producers]
        for other in {id(found): found for n in members if (found := region_of.get(n)) is not None}.values():
            members |= other
        region_of.update(dict.fromkeys(members, members))
    groups = {id(region_of[n]): region_of[n] for n in graph.nodes if isinstance(n.op, CompilerEnd)}
    return [_region(graph, members) for members in groups.values()]


def _region(graph: Graph, members: set[Node]) -> CompilerRegion:
    ordered = [node for node in graph.nodes if node in members]
    begins = tuple(node for node in ordered if isinstance(node.op, CompilerBegin))
    ends = tuple(node for node in ordered if isinstance(node.op, CompilerEnd))
    inner = tuple(node for node in ordered if not isinstance(node.op, CompilerBegin | CompilerEnd))
    op = ends[0].op
    assert isinstance(op, CompilerEnd)
    return CompilerRegion(op.compiler, op.composite, inner, begins, ends)


def has_detour(graph: Graph, first: set[Node], second: set[Node], unit: Mapping[Node, set[Node]]) -> bool:
    """Return whether a path leads from `first` to `second` through a node outside of both.

    Args:
        unit: regions that will run as one step, by their nodes. A path can enter and leave such a region at
            any of its nodes.
    """
    consumers = graph.consumers()
    ours = first | second
    pending = [reader for node in ours for value in node.outputs for reader in consumers.get(value, ())]
    pending = [node for node in pending if node not in ours]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in ours:
            return True
        if node in seen:
            continue
        together = unit.get(node, {node})
        seen |= together
        pending += [r for n in together for value in n.outputs for r in consumers.get(value, ())]
        pending = [n for n in pending if n not in seen]
    return False
