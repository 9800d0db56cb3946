"""Views: values whose bytes are those of another value, or a part of them.

A reshape or a slice is a view of its operand. A concatenation view is the reverse: its operands are computed
into their places within its result. Either way a value has a place in the storage of its root.
"""

from __future__ import annotations

from collections.abc import Sequence

from microfold.errors import GraphError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.ir.types import Array
from microfold.support.frozen import frozen

# Views start at multiples of it, as storage does: kernels load words.
ALIGNMENT = 8


@frozen
class StoragePlace:
    """Where a value's bytes are.

    Attributes:
        root: the value that owns the storage.
        offset: bytes from its start.
    """

    root: Value
    offset: int


def needs_no_code(node: Node) -> bool:
    """The node only looks at bytes that are there already."""
    return node.op.is_view and not node.epilogue


class Views:
    """The places of all values of a graph.

    Raises:
        GraphError: an operand of a concatenation view cannot be placed in its result.
    """

    def __init__(self, graph: Graph):
        self._parents: dict[Value, tuple[Value, int]] = {}
        self._producers = graph.producers()
        for node in graph.nodes:
            self._look(node)

    def add(self, node: Node) -> None:
        """Take a node in that reads values of the graph, and of nodes added before.

        Raises:
            GraphError: see above.
        """
        self._producers.update(dict.fromkeys(node.outputs, node))
        self._look(node)

    def _look(self, node: Node) -> None:
        if not needs_no_code(node):
            return
        if node.op.is_concat_view:
            self._join(node)
        else:
            source = node.inputs[0]
            assert source is not None
            start = node.op.view_start(source.type) * source.type.dtype.itemsize
            self._parents[node.output] = (source, start)

    def __getitem__(self, value: Value) -> StoragePlace:
        """A value that is no view is its own root."""
        row: list[Value] = []
        while value in self._parents:
            row.append(value)
            value = self._parents[value][0]
        offset = 0
        for part in reversed(row):
            offset += self._parents[part][1]
            # Next time it takes one step. The root may yet get a parent.
            self._parents[part] = (value, offset)
        return StoragePlace(value, offset)

    def refusal(self, value: Value) -> str | None:
        """Why a value cannot be computed into another one's storage; None if it can."""
        place = self[value]
        if place.root not in self._producers:
            return f"no node computes %{place.root.name}"
        if place.root.type.nbytes != value.type.nbytes:
            return f"%{value.name} is a part of %{place.root.name}"
        return None

    def _join(self, node: Node) -> None:
        offset = 0
        for value in node.operands:
            refusal = self.refusal(value)
            if refusal is not None:
                raise GraphError(
                    f"{describe(node)}: operands of concat_view must be computed in its result; {refusal}"
                )
            self._parents[self[value].root] = (node.output, offset)
            offset += value.type.nbytes


class StoragePlaces:
    """`Views` of several graphs; a value belongs to one of them, a constant to any number."""

    def __init__(self, graphs: Sequence[Graph]):
        self._views: dict[Value, Views] = {}
        self._constants: dict[Value, Array] = {}
        for graph in graphs:
            views = Views(graph)
            values = (value for node in graph.nodes for value in node.outputs)
            states = (state.value for state in graph.state)
            self._views.update(dict.fromkeys((*graph.inputs, *states, *graph.constants, *values), views))
            self._constants.update(graph.constants)

    def __getitem__(self, value: Value) -> StoragePlace:
        views = self._views.get(value)
        return views[value] if views is not None else StoragePlace(value, 0)

    def constant(self, value: Value) -> Array:
        """The array behind a constant, or a view of one."""
        return self._constants[self[value].root]
