"""Transformation of chosen graphs of a model by name: the main graph and subgraphs at any depth."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from microfold.errors import InputError
from microfold.ir.graph import Graph


def transform_named(
    graph: Graph, names: Collection[str], transform: Callable[[Graph], Graph], *, with_callees: bool = False
) -> Graph:
    """Transform the graphs with these names, subgraphs before the graph that runs them.

    Args:
        graph: the main graph.
        names: names of the main graph or of subgraphs; empty for all graphs.
        transform: transforms one graph, whose subgraphs are already transformed.
        with_callees: whether the subgraphs of a named graph are also transformed.

    Returns:
        The new main graph; `graph` itself if nothing changed.

    Raises:
        InputError: a name is not the name of a graph.
    """
    if isinstance(names, str):
        raise InputError(f"functions are given as a list of names; wrap {names!r} in a list")
    known = dict.fromkeys(_names(graph.name, graph))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"there is no function {', '.join(unknown)}; the model has {', '.join(known)}")

    def walk(name: str, body: Graph, inherited: bool) -> Graph:
        chosen = inherited or not names or name in names
        body = body.with_bodies(lambda inner, each: walk(inner, each, chosen and with_callees))
        return transform(body) if chosen else body

    return walk(graph.name, graph, False)


def _names(name: str, graph: Graph) -> Iterator[str]:
    yield name
    for inner, body in graph.subgraphs.items():
        yield from _names(inner, body)
