"""Parts of a graph around one transpose: what its message may meet, and what may be moved in front of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.support.frozen import frozen
from microfold.transform.layout.propagation.elementwise import is_elementwise
from microfold.transform.layout.propagation.sweep import Raised, moves, rule_of

# Nodes of the largest window.
MAX_WINDOW = 64


@frozen(eq=False)
class Window:
    """Some nodes, as a graph.

    Attributes:
        read_outside: values that nodes outside of it read.
    """

    graph: Graph
    read_outside: frozenset[Value]


class Surroundings:
    """A graph, made ready for windows to be cut out of it."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self.producers = graph.producers()
        self.readers = graph.consumers()
        self.ends = {*graph.outputs, *(state.next for state in graph.state)}

    def window(self, nodes: Iterable[Node]) -> Window:
        """These nodes."""
        kept = dict.fromkeys(sorted(nodes, key=self.position.__getitem__))
        made = dict.fromkeys(value for node in kept for value in node.outputs)
        read = dict.fromkeys(value for node in kept for value in node.operands)
        constants = {value: self.graph.constants[value] for value in read if value in self.graph.constants}
        inputs = tuple(value for value in read if value not in made and value not in constants)
        read_outside = frozenset(
            value for value in made if any(reader not in kept for reader in self.readers.get(value, ()))
        )
        ends = tuple(value for value in made if value in self.ends or value in read_outside)
        return Window(Graph("window", inputs, ends, tuple(kept), constants), read_outside)

    def touched(self, window: Window) -> Iterator[Node]:
        """The nodes of a window, those that it reads, and those that read it."""
        for node in window.graph.nodes:
            yield node
            yield from (self.producers[value] for value in node.operands if value in self.producers)
            yield from (reader for value in node.outputs for reader in self.readers.get(value, ()))

    def around(self, seed: Node) -> tuple[Node, ...]:
        """All nodes that windows of a transpose may have."""
        before = self._before(seed, MAX_WINDOW) if isinstance(seed.op, Transpose) else {}
        return (*before, *self.behind([seed], MAX_WINDOW))

    def behind(self, starts: Iterable[Node], size: int) -> dict[Node, None]:
        """The nodes that messages from some nodes may reach, the nearest first; at most `size`."""
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

    def raised(self, seed: Node) -> Iterator[tuple[Window, Raised]]:
        """Operands to transpose instead of the seed's: those of 1, 2, 4 … nodes before it along each path."""
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
        """Nodes that keep axes, of which so many lie one behind the other in front of the seed."""
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
        """Elements of operands that are computed, without transposes that might cancel, or do the same."""
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
        """Transposes of a value."""
        return [reader for reader in self.readers.get(value, ()) if moves(reader.op)]


def _is_movement(node: Node | None) -> bool:
    return node is not None and (moves(node.op) or isinstance(node.op, Reshape))


def _may_pass(node: Node) -> bool:
    """Messages may go on behind the node."""
    return len(node.outputs) == 1 and (_is_movement(node) or rule_of(node.op) is not None)


def _keeps_axes(node: Node) -> bool:
    """The axes of its result are those of its operands."""
    return is_elementwise(node.op) or isinstance(node.op, Pad | StridedSlice | Concatenate)
