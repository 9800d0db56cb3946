"""Rows of a streamed input that a region reads: complete rows, or some columns."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import Views
from microfold.ops.columns import COLUMNS
from microfold.ops.movement.strided_slice import StridedSlice


class InputRows(Struct, frozen=True):
    """Rows that a region reads from an image.

    Attributes:
        image: an input of the graph, or a reshape of it.
        skipped: number of elements at the beginning of each row of the image that are not read.
        columns: whether the rows are some columns of the image; other regions then read the image again.
    """

    image: Value
    skipped: int = 0
    columns: bool = False


def taken_rows(graph: Graph, value: Value, views: Views, pushed: Collection[Value]) -> InputRows | None:
    """Return the rows of a streamed image that a value consists of; None if it does not.

    Columns of an image are also rows of it, if a single slice makes them.
    """
    root = views[value].root
    if root in pushed:
        return InputRows(value) if value.type.nbytes == root.type.nbytes else None
    producer = next((node for node in graph.nodes if value in node.outputs), None)
    if producer is None or not slices_columns(producer):
        return None
    assert isinstance(producer.op, StridedSlice)
    whole = producer.operands[0]
    root = views[whole].root
    if root not in pushed or whole.type.nbytes != root.type.nbytes:
        return None
    return InputRows(whole, producer.op.begin[COLUMNS] * whole.type.shape[-1], columns=True)


def slices_columns(node: Node) -> bool:
    """Return whether a node selects adjacent columns of an image, with all rows and channels."""
    op = node.op
    if not isinstance(op, StridedSlice) or node.epilogue or len(op.size) != COLUMNS + 2:
        return False
    shape = node.operands[0].type.shape
    others = [axis for axis in range(len(shape)) if axis != COLUMNS]
    return op.strides == (1,) * len(shape) and all(op.size[axis] == shape[axis] for axis in others)
