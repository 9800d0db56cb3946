"""Composites: disjoint matches of a pattern table. Each match can become one unit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.match import GraphFlow, Match
from microfold.ir.node import Node, Value
from microfold.ir.pattern import match
from microfold.ir.pattern_table import PatternEntry

Note = Callable[[Node, str], object]


class Composite(Struct, frozen=True, eq=False):
    """Match of a table's pattern, whose nodes belong to no other match.

    Attributes:
        owner: name of the table; empty if there is only one.
        entry: row of the table.
        nodes: nodes in topological order, the root last. Only the root's result is read outside, unless the
            entry allows several results.
    """

    owner: str
    entry: PatternEntry
    nodes: tuple[Node, ...]


def find_composites(
    graph: Graph,
    tables: Sequence[tuple[str, Sequence[PatternEntry]]],
    *,
    taken: Collection[Node] = (),
    declined: Note | None = None,
) -> list[Composite]:
    """Return disjoint matches, the one that ends last in the graph first.

    The rows of the tables are tried one after the other, each on the whole graph, so a match of an earlier
    row
    always wins over one of a later row. Each row is tried at the last nodes of the graph first.

    Args:
        tables: tables, each with its owner's name.
        taken: nodes that cannot be part of a match.
        declined: called with the root and the reasons if a pattern's last operator matches, but no pattern
            does.
    """
    rows = [(owner, entry) for owner, entries in tables for entry in entries]
    flow, units = GraphFlow(graph), _Units(graph, taken)
    found_at: dict[Node, Composite] = {}
    reasons: dict[Node, list[str]] = {}
    for owner, entry in rows:
        title = f"{owner} {entry.name}".strip()
        for root in reversed(graph.nodes):
            if root not in units.free or not root.outputs:
                continue
            found = match(entry.pattern, root.outputs[0], flow)
            if isinstance(found, Match):
                reason = units.rejection(found.nodes, entry.several_results) or entry.rejection(found)
                if reason is None:
                    found_at[root] = Composite(owner, entry, found.nodes)
                    units.add(found.nodes)
                else:
                    reasons.setdefault(root, []).append(f"{title}: {reason}")
            elif found.matched:
                reasons.setdefault(root, []).append(f"{title}: {found}")
    if declined is not None:
        for root in reversed(graph.nodes):
            if root in units.free and root in reasons:
                declined(root, "; ".join(reasons[root]))
    return [found_at[root] for root in reversed(graph.nodes) if root in found_at]


class _Units:
    """Units found so far in a graph.

    Attributes:
        free: nodes that belong to no unit.
    """

    def __init__(self, graph: Graph, taken: Collection[Node]):
        self.free = set(graph.nodes).difference(taken)
        self._consumers = graph.consumers()
        self._ends = {*graph.outputs, *(state.next for state in graph.state)}
        self._position = {node: index for index, node in enumerate(graph.nodes)}
        # Only nodes of units whose inner values are read outside: a path can enter such a unit after the node
        # at which
        # another path leaves it.
        self._open: dict[Node, tuple[Node, ...]] = {}

    def add(self, nodes: tuple[Node, ...]) -> None:
        self.free.difference_update(nodes)
        if self._read_outside(nodes) is not None:
            self._open.update(dict.fromkeys(nodes, nodes))

    def rejection(self, nodes: Sequence[Node], several_results: bool) -> str | None:
        """Return why these nodes cannot be a unit; None if they can."""
        if not nodes:
            return "it has no node"
        for node in nodes:
            if node not in self.free:
                return f"%{node.outputs[0].name} belongs to another unit"
            if node.op.has_effect:
                return f"{node.op.name} has an effect"
        outside = self._read_outside(nodes)
        if outside is not None and not several_results:
            return f"%{outside.name} is read outside the pattern"
        if (outside is not None or self._open) and (detour := self._detour(nodes)) is not None:
            return f"%{detour.outputs[0].name} must run between its nodes"
        return None

    def _read_outside(self, nodes: Sequence[Node]) -> Value | None:
        """Return the first value that a node before the last computes and that is read outside."""
        inside = set(nodes)
        for value in (value for node in nodes[:-1] for value in node.outputs):
            if value in self._ends or not inside.issuperset(self._consumers.get(value, ())):
                return value
        return None

    def _detour(self, nodes: Sequence[Node]) -> Node | None:
        """Return a node outside on a path from these nodes back to them; None if there is none.

        A unit counts as one node. Nodes after all of these need to be visited only if a unit leads back.
        """
        inside = set(nodes)
        last = max(self._position[node] for node in nodes)
        spans = [(self._position[unit[0]], self._position[unit[-1]]) for unit in set(self._open.values())]
        for first, end in sorted(spans):
            last = max(last, end) if first <= last else last
        pending = self._behind(nodes)
        seen: set[Node] = set()
        while pending:
            node = pending.pop()
            if node in inside or node in seen or self._position[node] > last:
                continue
            together = self._open.get(node, (node,))
            seen.update(together)
            following = self._behind(together)
            if not inside.isdisjoint(following):
                return node
            pending += following
        return None

    def _behind(self, nodes: Sequence[Node]) -> list[Node]:
        return [reader for node in nodes for v in node.outputs for reader in self._consumers.get(v, ())]
