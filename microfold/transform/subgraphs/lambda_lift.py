"""Makes functions of regions of nodes that have the same label.

    %a: int8[4] = clip(%x) {...}                     %b: int8[4] = call(%x) {body="f", ...}
    %b: int8[4] = logistic(%a)                  ->   %y: int8[4] = copy(%b)
    %y: int8[4] = copy(%b)                           subgraph @f = graph @f(%x: int8[4]) -> (%b) {
                                                       %a: int8[4] = clip(%x) {...}
    (the first two are labelled "f")                   %b: int8[4] = logistic(%a)
                                                     }

Connected nodes of one label become one function, or several if a path between them leads through another
node. Their operands become parameters, as in the closures that TVM's LambdaLift lifts. Constants move into
the function. `inline` is the inverse. Nodes with effects stay.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.outline import OutlinedRegion, outline
from microfold.ops.control.call import Call
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass

Label = Callable[[Node], "str | None"]


@module_pass(opt_level=0)
class LambdaLift(Struct, frozen=True):
    """Lifting of labelled nodes into functions.

    Attributes:
        label: returns the name of the function for a node of the main graph, or None if it stays.
    """

    label: Label | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        grouping = _Grouping(graph)
        for node in graph.nodes:
            name = self.label(node) if self.label is not None else None
            if name is None or isinstance(node.op, Call):
                continue
            if node.op.has_effect:
                context.declined(node, "it has an effect")
                continue
            grouping.place(node, name)
        if not grouping.members:
            return graph
        for number, nodes in grouping.members.items():
            context.fired(nodes[0], f"{len(nodes)} nodes become @{grouping.names[number]}")
        return outline(
            graph,
            [
                OutlinedRegion(grouping.names[number], tuple(nodes), Call)
                for number, nodes in grouping.members.items()
            ],
        )


class _Grouping:
    """Convex groups of nodes. Nodes must be added in topological order.

    Attributes:
        names: label of each group.
        members: nodes of each group.
    """

    def __init__(self, graph: Graph):
        self.producers = graph.producers()
        self.names: dict[int, str] = {}
        self.members: dict[int, list[Node]] = {}
        self.group: dict[Node, int] = {}

    def place(self, node: Node, name: str) -> None:
        """Add the node to the first group with this name from which it reads, or to a new group."""
        for before in self._before([node]):
            number = self.group.get(before)
            if number is not None and self.names[number] == name and self._stays_convex(node, number):
                break
        else:
            number = len(self.members)
            self.names[number] = name
            self.members[number] = []
        self.members[number].append(node)
        self.group[node] = number

    def _before(self, nodes: list[Node]) -> list[Node]:
        values = dict.fromkeys(value for node in nodes for value in node.operands)
        return list(dict.fromkeys(self.producers[value] for value in values if value in self.producers))

    def _stays_convex(self, node: Node, number: int) -> bool:
        """Return whether no path from the group to the node leads outside. Other groups count as one node."""
        todo = [other for other in self._before([node]) if self.group.get(other) != number]
        seen: set[Node] = set()
        while todo:
            other = todo.pop()
            if other in seen:
                continue
            unit = self.members[self.group[other]] if other in self.group else [other]
            seen.update(unit)
            before = self._before(unit)
            if any(self.group.get(n) == number for n in before):
                return False
            todo += before
        return True
