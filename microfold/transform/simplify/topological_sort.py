"""Reorders the nodes topologically, depth first, breadth first or for the least memory.

    %a: int8[4] = clip(%x) {...}                    %a: int8[4] = clip(%x) {...}
    %b: int8[4] = clip(%z) {...}           ->       %c: int8[4] = tanh(%a)
    %c: int8[4] = tanh(%a)                          %b: int8[4] = clip(%z) {...}
    %d: int8[4] = tanh(%b)                          %d: int8[4] = tanh(%b)
    (breadth)                                       (depth)

The order of the nodes is the order of the calls in the generated code, and so determines how long values are
alive. Depth first finishes a branch before it begins the next one; breadth first advances all branches
together. In the direction of the inputs, a branch begins when its operands are available; in the direction of
the outputs, when its result is needed. Least memory always picks the node that leaves the fewest bytes alive;
its order is used only if it reduces the peak. Nodes with effects keep their order. Ties keep the old order,
so that a second run changes nothing. All bits stay the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import Views
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

Edges = Mapping[Node, Sequence[Node]]


@function_pass(opt_level=0)
class TopologicalSort(Struct, frozen=True):
    """Topological sort of the nodes.

    Attributes:
        order: ``depth`` or ``breadth`` first, or least ``memory`` of live values.
        direction: forward from the ``inputs``, or backward from the ``outputs``; ignored by ``memory``.
    """

    order: Literal["depth", "breadth", "memory"] = "depth"
    direction: Literal["inputs", "outputs"] = "inputs"

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if self.order == "depth" and self.direction == "outputs":
            return self._sorted(graph, depth_first_from_outputs(graph), context)
        before, after = _edges(graph)
        if self.order == "memory":
            return self._by_memory(graph, before, after, context)
        if self.direction == "inputs":
            nodes = _sweep(graph.nodes, before, after, self.order == "depth")
        else:
            nodes = _sweep(graph.nodes[::-1], after, before, False)[::-1]
        return self._sorted(graph, nodes, context)

    def _sorted(self, graph: Graph, nodes: list[Node], context: PassContext) -> Graph:
        if nodes == list(graph.nodes):
            context.declined(f"graph @{graph.name}", f"the nodes are {self.order} first already")
            return graph
        return _reordered(graph, nodes, context)

    def _by_memory(self, graph: Graph, before: Edges, after: Edges, context: PassContext) -> Graph:
        memory = _Memory(graph)
        nodes = _least_memory(graph.nodes, before, after, memory)
        peaks = memory.peak(graph.nodes), memory.peak(nodes)
        if peaks[1] >= peaks[0]:
            context.declined(
                f"graph @{graph.name}",
                f"at most {peaks[0]} bytes are alive at once; in the new order, {peaks[1]}",
            )
            return graph
        return _reordered(graph, nodes, context)


def _reordered(graph: Graph, nodes: Sequence[Node], context: PassContext) -> Graph:
    for node, old in zip(nodes, graph.nodes, strict=True):
        if node is not old:
            context.fired(node, f"it takes the place of {old.op.name}")
    return graph.with_nodes(nodes)


class _Memory:
    """Live bytes of an order. Results live from their node to their last reader, inputs from the start."""

    def __init__(self, graph: Graph):
        views = Views(graph)
        computed = {value for node in graph.nodes for value in node.outputs} | set(graph.inputs)
        self.inputs = set(graph.inputs)
        self.ends = {views[v].root for v in (*graph.outputs, *(state.next for state in graph.state))}
        self.reads = {node: {views[v].root for v in node.operands} & computed for node in graph.nodes}
        self.writes = {node: {views[v].root for v in node.outputs} for node in graph.nodes}
        self.readers = Counter(value for reads in self.reads.values() for value in reads)

    def change(self, node: Node, live: set[Value], left: Counter[Value]) -> int:
        """Return by how many bytes the live values grow when the node runs."""
        new = sum(value.type.nbytes for value in self.writes[node] - live)
        return new - sum(value.type.nbytes for value in self.dying(node, left))

    def dying(self, node: Node, left: Counter[Value]) -> set[Value]:
        """Return the values that die at the node; `left` has the number of readers before it."""
        return {value for value in self.reads[node] if left[value] == 1 and value not in self.ends}

    def run(self, node: Node, live: set[Value], left: Counter[Value]) -> int:
        """Return the bytes alive during the node, and advance `live` and `left` past it."""
        live |= self.writes[node]
        held = sum(value.type.nbytes for value in live)
        live -= self.dying(node, left)
        left.subtract(self.reads[node])
        return held

    def peak(self, nodes: Sequence[Node]) -> int:
        """Return the peak number of live bytes of an order."""
        live, left = set(self.inputs), Counter(self.readers)
        return max((self.run(node, live, left) for node in nodes), default=0)


def _least_memory(nodes: Sequence[Node], before: Edges, after: Edges, memory: _Memory) -> list[Node]:
    """Pick the ready node that leaves the fewest bytes alive, again and again; of equals the first one."""
    missing = {node: len(before[node]) for node in nodes}
    position = {node: index for index, node in enumerate(nodes)}
    ready = [node for node in nodes if not missing[node]]
    live, left = set(memory.inputs), Counter(memory.readers)
    result: list[Node] = []
    while ready:
        node = min(ready, key=lambda n: (memory.change(n, live, left), position[n]))
        ready.remove(node)
        result.append(node)
        memory.run(node, live, left)
        for other in after[node]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    return result


def _edges(graph: Graph) -> tuple[Edges, Edges]:
    """Return the predecessors and the successors of each node."""
    producers = graph.producers()
    before: dict[Node, list[Node]] = {}
    after: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
    effect: list[Node] = []
    for node in graph.nodes:
        read = [producers[value] for value in node.operands if value in producers]
        before[node] = list(dict.fromkeys([*read, *(effect if node.op.has_effect else [])]))
        if node.op.has_effect:
            effect = [node]
        for other in before[node]:
            after[other].append(node)
    return before, after


def _sweep(nodes: Sequence[Node], before: Edges, after: Edges, depth: bool) -> list[Node]:
    """Sort by Kahn's algorithm. Nodes that become ready together keep their old order."""
    position = {node: index for index, node in enumerate(nodes)}
    missing = {node: len(before[node]) for node in nodes}
    ready = [node for node in nodes if not missing[node]]
    if depth:
        ready.reverse()
    result: list[Node] = []
    while ready:
        node = ready.pop() if depth else ready.pop(0)
        result.append(node)
        for other in after[node]:
            missing[other] -= 1
        ready += sorted(
            (other for other in after[node] if not missing[other]), key=position.__getitem__, reverse=depth
        )
    return result


def depth_first_from_outputs(graph: Graph) -> list[Node]:
    """Return the post-order from the nodes without successors: each node follows its operands."""
    before, after = _edges(graph)
    result: dict[Node, None] = {}
    pending = [node for node in reversed(graph.nodes) if not after[node]]
    while pending:
        needed = [node for node in before[pending[-1]] if node not in result]
        if needed:
            pending += reversed(needed)
        else:
            result[pending.pop()] = None
    return list(result)
