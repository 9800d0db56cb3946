"""Families of subgraphs whose signatures depend on each other."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node


class Family(Struct, frozen=True):
    """Subgraphs whose signatures can only change together, because one node runs several of them.

    Attributes:
        names: names of the subgraphs, in the order of the graph.
        nodes: all nodes that run any of them. They run no other subgraphs.
    """

    names: tuple[str, ...]
    nodes: tuple[Node, ...]


def families(graph: Graph) -> list[Family]:
    """Return the families of all subgraphs that nodes run."""
    # Union-find: the parent of each name in its family's tree.
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
    """Return the indices of a loop's carried values that can influence the used results.

    Args:
        used: indices of results that are used in addition to the number of iterations.
    """
    found = set(used) | condition.inputs_read(condition.outputs)
    size = -1
    while size != len(found):
        size = len(found)
        found |= body.inputs_read([body.outputs[index] for index in found])
    return found
