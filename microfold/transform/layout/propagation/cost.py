"""Cost of the transposes of a graph."""

from __future__ import annotations

from collections.abc import Mapping

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.transform.layout.propagation.sweep import arrangement_of, moves

# Moved elements, moved bytes, number of transposes, and their depth (negative: later is better).
Cost = tuple[int, int, int, int]
NOTHING: Cost = (0, 0, 0, 0)


def added(one: Cost, other: Cost) -> Cost:
    """Return the sum of two costs."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def depths(graph: Graph, given: Mapping[Value, int] | None = None) -> dict[Value, int]:
    """Return the maximum number of computing nodes on a path to each value.

    Args:
        given: depths of the graph's inputs; default: 0.
    """
    late = dict(given or {})
    for node in graph.nodes:
        depth = max((late.get(value, 0) for value in node.operands), default=0)
        computes = not moves(node.op) and not node.op.is_view
        late.update(dict.fromkeys(node.outputs, depth + computes))
    return late


def node_cost(node: Node, late: Mapping[Value, int]) -> Cost:
    """Return the cost of a node if it is a transpose, else 0. A view costs only its count."""
    if not moves(node.op):
        return NOTHING
    x = node.operands[0].type
    place = -max(late.get(value, 0) for value in node.operands)
    if x.size == 0 or arrangement_of(node.op, x.shape).is_view:
        return 0, 0, 1, place
    return x.size, x.nbytes, 1, place


def movement_cost(graph: Graph, given: Mapping[Value, int] | None = None) -> Cost:
    """Return the cost of all nodes. For `given` see `depths`."""
    late = depths(graph, given)
    total = NOTHING
    for node in graph.nodes:
        total = added(total, node_cost(node, late))
    return total
