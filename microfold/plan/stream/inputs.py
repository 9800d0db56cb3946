"""What regions take of the rows of an input that is handed in: all of them, or some columns."""

from __future__ import annotations

from collections.abc import Collection

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import Views
from microfold.ops.columns import COLUMNS
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.support.frozen import frozen


@frozen
class InputRows:
    """Rows that are taken of an image.

    Attributes:
        image: an input of the graph, or another shape of it.
        skipped: elements at the beginning of each row of the image that are not taken.
        columns: there are others, which other regions take: they read the image again.
    """

    image: Value
    skipped: int = 0
    columns: bool = False


def taken_rows(graph: Graph, value: Value, views: Views, pushed: Collection[Value]) -> InputRows | None:
    """What rows of a value are of an image that is handed in; None if they are none.

    Columns of an image are rows of it, too, where a slice makes them and nothing else.
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
    """Whether it takes columns of an image, one after the other, all their rows and channels."""
    op = node.op
    if not isinstance(op, StridedSlice) or node.epilogue or len(op.size) != COLUMNS + 2:
        return False
    shape = node.operands[0].type.shape
    others = [axis for axis in range(len(shape)) if axis != COLUMNS]
    return op.strides == (1,) * len(shape) and all(op.size[axis] == shape[axis] for axis in others)
