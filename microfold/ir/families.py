"""What the signatures of subgraphs have to do with each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from microfold.ir.graph import Graph
from microfold.ir.node import Node


@dataclass(frozen=True)
class Family:
    """Subgraphs whose signatures can only change together, as one node runs several, with all such nodes.

    Attributes:
        names: of the subgraphs, in the order of the graph's.
        nodes: each runs some of them and no other.
    """

    names: tuple[str, ...]
    nodes: tuple[Node, ...]


def families(graph: Graph) -> list[Family]:
    """The subgraphs that nodes run, grouped."""
    group = {name: {name} for name in graph.subgraphs}
    for node in graph.nodes:
        together = set[str]().union(*(group[name] for name in node.op.bodies))
        for name in together:
            group[name] = together
    found: list[Family] = []
    for name in graph.subgraphs:
        names = tuple(other for other in graph.subgraphs if other in group[name])
        nodes = tuple(node for node in graph.nodes if set(node.op.bodies) & group[name])
        if nodes and names[0] == name:
            found.append(Family(names, nodes))
    return found


def carried(condition: Graph, body: Graph, used: Iterable[int] = ()) -> set[int]:
    """Of what a loop carries from run to run, the indices that matter.

    Args:
        used: indices of results that are wanted beside the number of runs.
    """
    found = set(used) | condition.inputs_read(condition.outputs)
    size = -1
    while size != len(found):
        size = len(found)
        found |= body.inputs_read([body.outputs[index] for index in found])
    return found
