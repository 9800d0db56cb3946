"""Column parts: columns of an operator's result, computed from columns of its operands.

Like a band of rows (`microfold.ops.rows`), a part is the same operator on smaller images. Unlike a band, it
has no columns of padding in its operands. If windows exceed the left or right edge of the image, the operator
pads::

    reference(x)[:, :, start:stop] == part.op.reference(x[:, :, first:last] for first, last in part.operands)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.op import Op, Pattern
from microfold.ir.types import TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.image import refuses_layout
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.window import Pair, Window

COLUMNS = 2  # axis of NHWC images
Columns = Pair  # first column, and the one after the last
Operands = Sequence[TensorType | None]


class ColumnPart(Struct, frozen=True):
    """Some columns of an operator's result.

    Attributes:
        op: operator that computes only these columns from `operands`.
        operands: columns that it reads of each operand of the original operator; None if it reads all of the
            operand, or if the operand is absent.
    """

    op: Op
    operands: tuple[Columns | None, ...]


def column_part(op: Op, operands: Operands, columns: Columns) -> ColumnPart | str:
    """Return the part that computes some columns of an operator's result, or the reason why there is none.

    Args:
        operands: types of the operands of the whole operator.
        columns: columns of the result; at least one.
    """
    if op.is_view:
        return "it is a view: its result shares the memory of its operand"
    rule = next((RULES[kind] for kind in type(op).__mro__ if kind in RULES), None)
    if rule is None and op.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST):
        rule = _elementwise
    if rule is None:
        return f"there is no rule for columns of {op.name}"
    reason = refuses_layout(op)
    if reason is not None:
        return reason
    results = op.infer_all(operands)
    if len(results) != 1 or results[0].rank != 4 or results[0].shape[0] != 1:
        return f"its result must be an image [1, H, W, C]; it is {', '.join(map(str, results))}"
    found = rule(op, operands, columns)
    if isinstance(found, str):
        return found
    for operand, part in zip(operands, found.operands, strict=True):
        if operand is not None and part is not None:
            axis = operand.rank - 2
            if math.prod(operand.shape[: axis - 1]) != 1:
                return f"columns must be those of one image; it reads {operand}"
            if operand.quant is not None and operand.quant.axis == axis:
                return "the scales of an operand vary along its columns"
    return found


def _elementwise(op: Op, operands: Operands, columns: Columns) -> ColumnPart:
    """Return a part that reads the same columns; an operand that broadcasts over columns is read whole."""
    width = op.infer_all(operands)[0].shape[COLUMNS]
    parts = [columns if x is not None and x.rank >= 2 and x.shape[-2] == width else None for x in operands]
    return ColumnPart(op, tuple(parts))


def _broadcast_to(op: Op, operands: Operands, columns: Columns) -> ColumnPart:
    assert isinstance(op, BroadcastTo)
    shape = (*op.shape[:COLUMNS], columns[1] - columns[0], *op.shape[COLUMNS + 1 :])
    return replace(_elementwise(op, operands, columns), op=replace(op, shape=shape))


def _inside(window: Window, columns: Columns, width: int) -> tuple[Columns, Pair]:
    """Return the columns of an image that windows cover, and the padding to the left and right of them."""
    step, left = window.strides[1], window.padding[1][0]
    first, last = columns[0] * step - left, (columns[1] - 1) * step - left + window.extent[1]
    start, stop = min(max(first, 0), width), min(max(last, 0), width)
    return (start, stop), (start - first, last - stop)


def _convolution(op: Op, operands: Operands, columns: Columns) -> ColumnPart | str:
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    weights = operands[1]
    assert weights is not None
    return _windows(op, op.window(weights), operands, columns)


def _pool(op: Op, operands: Operands, columns: Columns) -> ColumnPart | str:
    assert isinstance(op, AveragePool2D | MaxPool2D)
    return _windows(op, op.window, operands, columns)


def _windows(
    op: Conv2D | DepthwiseConv2D | AveragePool2D | MaxPool2D,
    window: Window,
    operands: Operands,
    columns: Columns,
) -> ColumnPart | str:
    x = operands[0]
    assert x is not None
    part, padding = _inside(window, columns, x.shape[COLUMNS])
    if part[0] == part[1]:
        return "some of its windows contain only padding"
    smaller = replace(op, padding=(op.padding[0], padding))
    return ColumnPart(smaller, (part, *(None for _ in operands[1:])))


def _pad(op: Op, operands: Operands, columns: Columns) -> ColumnPart | str:
    assert isinstance(op, Pad)
    x = operands[0]
    assert x is not None
    if x.rank != 4:
        return f"its operand must be an image; it is {x}"
    window = Window((1, 1), (1, 1), (1, 1), (op.padding[1], op.padding[COLUMNS]))
    part, padding = _inside(window, columns, x.shape[COLUMNS])
    if part[0] == part[1]:
        return "some of its columns are only padding"
    smaller = replace(op, padding=(*op.padding[:COLUMNS], padding, *op.padding[COLUMNS + 1 :]))
    return ColumnPart(smaller, (part, *(None for _ in operands[1:])))


def _concatenate(op: Op, operands: Operands, columns: Columns) -> ColumnPart | str:
    assert isinstance(op, Concatenate)
    if op.axis == COLUMNS:
        return "it concatenates along the columns"
    return ColumnPart(op, tuple(columns for _ in operands))


Rule = Callable[[Op, Operands, Columns], "ColumnPart | str"]

RULES: Mapping[type[Op], Rule] = {
    AveragePool2D: _pool,
    BroadcastTo: _broadcast_to,
    Concatenate: _concatenate,
    Conv2D: _convolution,
    DepthwiseConv2D: _convolution,
    MaxPool2D: _pool,
    Pad: _pad,
}
