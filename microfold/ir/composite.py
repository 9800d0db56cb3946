"""Matches of a pattern table that can each become one unit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from microfold.ir.graph import Graph
from microfold.ir.match import GraphFlow, Match
from microfold.ir.node import Node, Value
from microfold.ir.pattern import match
from microfold.ir.pattern_table import PatternEntry
from microfold.support.frozen import frozen

Note = Callable[[Node, str], object]


@frozen(eq=False)
class Composite:
    """A match of a table's pattern whose nodes belong to no other.

    Attributes:
        owner: of the table; empty if there is only one.
        entry: the row of the table.
        nodes: in topological order, the root last. Only the root's result is read outside.
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
    """Disjoint matches, what ends last in the graph first, so that a longer pattern finds its nodes free.

    Args:
        tables: each with its owner's name. Where several patterns fit at one node, the first counts.
        taken: nodes that cannot be part of a match.
        declined: told the root and the reasons where a pattern's last operator is there, but none fits.
    """
    rows = [(owner, entry) for owner, entries in tables for entry in entries]
    flow, consumers = GraphFlow(graph), graph.consumers()
    ends = {*graph.outputs, *(state.next for state in graph.state)}
    free = set(graph.nodes).difference(taken)
    result: list[Composite] = []
    for root in reversed(graph.nodes):
        if root not in free or not root.outputs:
            continue
        reasons: list[str] = []
        for owner, entry in rows:
            title = f"{owner} {entry.name}".strip()
            found = match(entry.pattern, root.outputs[0], flow)
            if isinstance(found, Match):
                reason = _why_not(found.nodes, free, consumers, ends) or entry.check(found)
                if reason is None:
                    result.append(Composite(owner, entry, found.nodes))
                    free.difference_update(found.nodes)
                    break
                reasons.append(f"{title}: {reason}")
            elif found.matched:
                reasons.append(f"{title}: {found}")
        else:
            if reasons and declined is not None:
                declined(root, "; ".join(reasons))
    return result


def _why_not(
    nodes: Sequence[Node], free: set[Node], consumers: dict[Value, list[Node]], ends: set[Value]
) -> str | None:
    """Why these nodes cannot be a unit."""
    if not nodes:
        return "it has no node"
    inside = set(nodes)
    for node in nodes:
        if node not in free:
            return f"%{node.outputs[0].name} belongs to another unit"
        if node.op.has_effect:
            return f"{node.op.name} has an effect"
    for value in (value for node in nodes[:-1] for value in node.outputs):
        if value in ends or not inside.issuperset(consumers.get(value, ())):
            return f"%{value.name} is read outside the pattern"
    return None
