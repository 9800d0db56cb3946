"""What the signatures of subgraphs have to do with each other."""

from __future__ import annotations

from collections.abc import Iterable

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.support.frozen import frozen


@frozen
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
    # Of each name, another one of its family that is nearer to the one that stands for all.
    nearer = {name: name for name in graph.subgraphs}

    def root(name: str) -> str:
        while nearer[name] != name:
            nearer[name] = name = nearer[nearer[name]]
        return name

    for node in graph.nodes:
        for name in node.op.bodies[1:]:
            nearer[root(name)] = root(node.op.bodies[0])
    nodes: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op.bodies:
            nodes.setdefault(root(node.op.bodies[0]), []).append(node)
    names: dict[str, list[str]] = {}
    for name in graph.subgraphs:
        if root(name) in nodes:
            names.setdefault(root(name), []).append(name)
    return [Family(tuple(members), tuple(nodes[first])) for first, members in names.items()]


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
