"""Windows: small parts of a graph around one transpose, for the search of better positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.transform.layout.propagation.elementwise import is_elementwise
from microfold.transform.layout.propagation.sweep import Raised, moves, rule_of

# Maximum number of nodes of a window.
MAX_WINDOW = 64


class SubgraphWindow(Struct, frozen=True, eq=False):
    """Some nodes of a graph, as a graph.

    Attributes:
        read_outside: values that nodes outside of the window read.
    """

    graph: Graph
    read_outside: frozenset[Value]


class Surroundings:
    """Graph with indices for cutting out windows."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self.producers = graph.producers()
        self.readers = graph.consumers()
        self.ends = {*graph.outputs, *(state.next for state in graph.state)}

    def window(self, nodes: Iterable[Node]) -> SubgraphWindow:
        """Return the window of these nodes."""
        kept = dict.fromkeys(sorted(nodes, key=self.position.__getitem__))
        made = dict.fromkeys(value for node in kept for value in node.outputs)
        read = dict.fromkeys(value for node in kept for value in node.operands)
        constants = {value: self.graph.constants[value] for value in read if value in self.graph.constants}
        inputs = tuple(value for value in read if value not in made and value not in constants)
        read_outside = frozenset(
            value for value in made if any(reader not in kept for reader in self.readers.get(value, ()))
        )
        ends = tuple(value for value in made if value in self.ends or value in read_outside)
        return SubgraphWindow(Graph("window", inputs, ends, tuple(kept), constants), read_outside)

    def touched(self, window: SubgraphWindow) -> Iterator[Node]:
        """Yield the nodes of a window, their producers and their readers."""
        for node in window.graph.nodes:
            yield node
            yield from (self.producers[value] for value in node.operands if value in self.producers)
            yield from (reader for value in node.outputs for reader in self.readers.get(value, ()))

    def around(self, seed: Node) -> tuple[Node, ...]:
        """Return all nodes that windows of a transpose may contain."""
        before = self._before(seed, MAX_WINDOW) if isinstance(seed.op, Transpose) else {}
        return (*before, *self.behind([seed], MAX_WINDOW))

    def behind(self, starts: Iterable[Node], size: int) -> dict[Node, None]:
        """Return at most `size` nodes that messages from some nodes may reach, the nearest first."""
        found = dict.fromkeys(starts)
        pending = list(found)
        for node in pending:
            if not _may_pass(node):
                continue
            for value in node.outputs:
                for reader in self.readers.get(value, ()):
                    if len(found) >= size:
                        return found
                    if reader not in found:
                        found[reader] = None
                        pending.append(reader)
        return found

    def raised(self, seed: Node) -> Iterator[tuple[SubgraphWindow, Raised]]:
        """Yield operands to transpose instead of the seed's, 1, 2, 4 … nodes before it along each path."""
        if not isinstance(seed.op, Transpose):
            return
        depth, known = 1, 0
        while True:
            inside = self._before(seed, depth)
            if len(inside) == known:
                return
            known = len(inside)
            raised = {
                (node, index): seed.op.permutation
                for node in inside
                for index, value in enumerate(node.inputs)
                if value is not None
                and self.producers.get(value) not in inside
                and value.type.rank == len(seed.op.permutation)
            }
            if raised:
                moved = dict.fromkeys(node.inputs[index] for node, index in raised)
                sharing = (
                    reader for value in moved if value is not None for reader in self._transposes(value)
                )
                window = self.window(self.behind([*inside, seed, *sharing], MAX_WINDOW))
                if self._moved(raised) <= sum(
                    n.operands[0].type.size for n in window.graph.nodes if moves(n.op)
                ):
                    yield window, raised
            depth *= 2

    def _before(self, seed: Node, depth: int) -> dict[Node, None]:
        """Return nodes before the seed that keep axes, on paths of at most `depth` nodes."""
        inside: dict[Node, None] = {}
        layer = dict.fromkeys([seed.operands[0]])
        for _ in range(depth):
            found = dict.fromkeys(self.producers[value] for value in layer if value in self.producers)
            new = [node for node in found if node not in inside and _keeps_axes(node)]
            inside.update(dict.fromkeys(new[: MAX_WINDOW // 2 - len(inside)]))
            layer = dict.fromkeys(value for node in new for value in node.operands)
            if not new or len(inside) == MAX_WINDOW // 2:
                break
        return inside

    def _moved(self, raised: Raised) -> int:
        """Count the elements to transpose, without constants and transposes that may cancel or be shared."""
        values = dict.fromkeys(node.inputs[index] for node, index in raised)
        return sum(
            value.type.size
            for value in values
            if value is not None
            and value not in self.graph.constants
            and not _is_movement(self.producers.get(value))
            and not self._transposes(value)
        )

    def _transposes(self, value: Value) -> list[Node]:
        """Return the transposes of a value."""
        return [reader for reader in self.readers.get(value, ()) if moves(reader.op)]


def _is_movement(node: Node | None) -> bool:
    return node is not None and (moves(node.op) or isinstance(node.op, Reshape))


def _may_pass(node: Node) -> bool:
    """Return whether messages may continue after the node."""
    return len(node.outputs) == 1 and (_is_movement(node) or rule_of(node.op) is not None)


def _keeps_axes(node: Node) -> bool:
    """Return whether the axes of the node's result are the axes of its operands."""
    return is_elementwise(node.op) or isinstance(node.op, Pad | StridedSlice | Concatenate)
