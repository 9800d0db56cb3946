"""Views: values that share the bytes of another value, or a part of them.

A reshape or a slice is a view of its operand. A concatenation view is the reverse: its operands are computed
directly into their parts of its result. Either way, a view has an offset in the storage of its root.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from microfold.errors import GraphError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.ir.types import Array

# Views start at multiples of this, in bytes, like storage, because kernels load words.
ALIGNMENT = 8


class StoragePlace(Struct, frozen=True):
    """Position of a value's bytes.

    Attributes:
        root: value that owns the storage.
        offset: offset from its start, in bytes.
    """

    root: Value
    offset: int


def needs_no_code(node: Node) -> bool:
    """Return whether the node is a view, which only reinterprets existing bytes."""
    return node.op.is_view and not node.epilogue


class Views:
    """Storage places of all values of a graph.

    Raises:
        GraphError: an operand of a concatenation view cannot be placed in its result.
    """

    def __init__(self, graph: Graph):
        self._parents: dict[Value, tuple[Value, int]] = {}
        self._producers = graph.producers()
        for node in graph.nodes:
            self._look(node)

    def add(self, node: Node) -> None:
        """Add a node that reads values of the graph and of nodes added before.

        Raises:
            GraphError: an operand of a concatenation view cannot be placed in its result.
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
        """Return the place of a value. A value that is no view is its own root."""
        row: list[Value] = []
        while value in self._parents:
            row.append(value)
            value = self._parents[value][0]
        offset = 0
        for part in reversed(row):
            offset += self._parents[part][1]
            # Path compression: the next lookup needs one step. The root may still get a parent.
            self._parents[part] = (value, offset)
        return StoragePlace(value, offset)

    def refusal(self, value: Value) -> str | None:
        """Return the reason why a value cannot be computed into another one's storage; None if it can."""
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
    """Storage places of several graphs. A value belongs to one graph; constants can be shared."""

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
        """Return the array of a constant, or of the root of a view of a constant."""
        return self._constants[self[value].root]
