"""Outlining: regions of a graph become subgraphs, each replaced by a call."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import GraphError
from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value
from microfold.ir.op import Op
from microfold.ir.types import TensorType

MakeCall = Callable[[str, tuple[TensorType, ...]], Op]


class OutlinedRegion(Struct, frozen=True, eq=False):
    """Nodes that become the body of a function.

    Attributes:
        name: name of the function. A number is appended if a subgraph already has the name.
        nodes: at least one node, in topological order. They must be convex: no path between two of them
            leads through a node outside.
        call: makes the operator of the call, from the function's final name and the types of its results.
        bind_constants: whether the body owns copies of the constants that its nodes read; otherwise they are
            parameters.
    """

    name: str
    nodes: tuple[Node, ...]
    call: MakeCall
    bind_constants: bool = True


def outline(graph: Graph, regions: Sequence[OutlinedRegion]) -> Graph:
    """Return the graph with each region replaced by a call of a new subgraph.

    The parameters of a subgraph are the values that the region reads, including states, in order of first
    use. If `OutlinedRegion.bind_constants` is set, constants become part of the subgraph instead. The results
    are the values that are read outside the region, in order of production.

    Raises:
        GraphError: a region is not convex, overlaps another region or contains a node with an effect.
    """
    units: dict[Node, int] = {}
    for index, region in enumerate(regions):
        for node in region.nodes:
            if node in units:
                raise GraphError(f"regions must be disjoint; {region.name!r} shares {node.op.name}")
            if node.op.has_effect:
                raise GraphError(f"a region must have no effect; {region.name!r} has {node.op.name}")
            units[node] = index
    subgraphs = dict(graph.subgraphs)
    calls: list[Node] = []
    for region in regions:
        name = fresh_name(region.name, subgraphs)
        body, arguments, results = _body(graph, region, name)
        subgraphs[name] = body
        calls.append(Node(region.call(name, body.signature.outputs), arguments, results))
    nodes = _ordered(graph, regions, units, calls)
    used = {name for node in nodes for name in node.op.bodies}
    moved = {name for region in regions for node in region.nodes for name in node.op.bodies}
    kept = {name: body for name, body in subgraphs.items() if name in used or name not in moved}
    return replace(graph, subgraphs=kept).with_nodes(nodes)


def fresh_name(name: str, taken: Collection[str]) -> str:
    """Return the name itself if it is new, or else the name with the first number that makes it new."""
    number, fresh = 0, name
    while fresh in taken:
        number += 1
        fresh = f"{name}_{number}"
    return fresh


def _body(
    graph: Graph, region: OutlinedRegion, name: str
) -> tuple[Graph, tuple[Value, ...], tuple[Value, ...]]:
    """Return the function, the values that its call reads, and the values that its call produces."""
    inside = set(region.nodes)
    produced = [value for node in region.nodes for value in node.outputs]
    read = dict.fromkeys(value for node in region.nodes for value in node.operands)
    bound = graph.constants if region.bind_constants else {}
    local = set(produced) | bound.keys()
    arguments = tuple(value for value in read if value not in local)
    needed = {value for node in graph.nodes if node not in inside for value in node.operands}
    needed |= {*graph.outputs, *(state.next for state in graph.state)}
    results = tuple(value for value in produced if value in needed)
    parameters = {value: Value(value.name, value.type) for value in arguments}
    nested = {name: graph.subgraphs[name] for node in region.nodes for name in node.op.bodies}
    body = Graph(
        name,
        tuple(parameters.values()),
        results,
        tuple(_reading(node, parameters) for node in region.nodes),
        {value: bound[value] for value in read if value in bound},
        subgraphs=nested,
    )
    return body, arguments, results


def _reading(node: Node, parameters: Mapping[Value, Value]) -> Node:
    """Return the node with parameters in place of the values that they represent."""
    inputs = tuple(parameters.get(value, value) if value is not None else None for value in node.inputs)
    epilogue = tuple(
        EpilogueStep(step.op, tuple(parameters.get(v, v) for v in step.operands)) for step in node.epilogue
    )
    return replace(node, inputs=inputs, epilogue=epilogue)


def _ordered(
    graph: Graph, regions: Sequence[OutlinedRegion], units: Mapping[Node, int], calls: Sequence[Node]
) -> list[Node]:
    """Return the nodes outside of the regions and the calls, in topological order.

    The original order is kept as far as possible. A call comes at the position of its region's
    last node, or later.
    """
    order: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        order[calls[units[node]] if node in units else node] = position
    producers = {value: node for node in order for value in node.outputs}
    waiting: dict[Node, set[Node]] = {}
    effect: Node | None = None
    for node in sorted(order, key=order.__getitem__):
        waiting[node] = {producers[value] for value in node.operands if value in producers}
        if node.op.has_effect:
            waiting[node] |= {effect} if effect is not None else set()
            effect = node
    readers: dict[Node, list[Node]] = {}
    for node, before in waiting.items():
        for other in before:
            readers.setdefault(other, []).append(node)
    by_position = {position: node for node, position in order.items()}
    ready = [order[node] for node, before in waiting.items() if not before]
    heapq.heapify(ready)
    result: list[Node] = []
    while ready:
        node = by_position[heapq.heappop(ready)]
        result.append(node)
        for reader in readers.get(node, []):
            waiting[reader].discard(node)
            if not waiting[reader]:
                heapq.heappush(ready, order[reader])
    if len(result) < len(order):
        stuck = [region.name for region, call in zip(regions, calls, strict=True) if waiting[call]]
        raise GraphError(f"regions must be convex; one of {', '.join(stuck)} is not")
    return result
