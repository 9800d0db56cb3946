"""Rules that say how an operator's result rows along an axis depend on rows of its operands.

Row r of a result depends on the rows ``[r * stride + start, r * stride + start + extent)`` of an operand, for
every r. The operator can then compute any rows of its result from these rows of the operands alone. Padding
is rows outside of the operand. If one row becomes several rows, r counts groups of them.

An operator may also combine all rows into a result without rows: a head. Every other behaviour along the axis
is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.op import Op, Pattern
from microfold.ir.types import Shape, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.image import image_axis, refuses_blocks
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.batch_norm import BatchNorm
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.layer_norm import LayerNorm
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.recurrent.hybrid_lstm import HybridLstm
from microfold.ops.recurrent.hybrid_sequence_rnn import HybridSequenceRnn
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.sequence_rnn import SequenceRnn
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.quantized_reduce_prod import QuantizedReduceProd
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd

Rows = tuple[int, int]  # range of rows [first, end)


class Reads(Struct, frozen=True):
    """Dependence of a group of result rows on the rows of an operand.

    Attributes:
        group: number of result rows in a group; only complete groups can be computed.
    """

    stride: int = 1
    start: int = 0
    extent: int = 1
    group: int = 1

    def of(self, rows: Rows) -> Rows:
        """Return the operand rows for complete groups of result rows; they may be outside of the operand."""
        first, last = rows[0] // self.group * self.stride, (rows[1] // self.group - 1) * self.stride
        return first + self.start, last + self.start + self.extent

    def within(self, rows: Rows) -> Rows:
        """Return the result rows that depend only on these operand rows; if none, end <= begin."""
        first = -((self.start - rows[0]) // self.stride)
        last = (rows[1] - self.start - self.extent) // self.stride + 1
        return first * self.group, last * self.group


class RowWise(Struct, frozen=True):
    """Operator that computes each row of its result separately.

    Attributes:
        axis: axis of the rows in the result.
        reads: dependence on each operand that has rows; None: the operand is read completely.
        op: returns the operator for a given number of result rows.
    """

    axis: int
    reads: tuple[Reads | None, ...]
    op: Callable[[int], Op]


class RowCombination(Struct, frozen=True):
    """Operator that combines all rows."""


class Case(Struct, frozen=True):
    """View of an operator for rules.

    Attributes:
        operands: types; None: absent.
        axes: axis of the rows in each operand; None: it has no rows.
        result: type of the first result.
    """

    operands: tuple[TensorType | None, ...]
    axes: tuple[int | None, ...]
    result: TensorType

    @property
    def x(self) -> TensorType:
        """Type of the first operand."""
        assert self.operands[0] is not None
        return self.operands[0]

    @property
    def axis(self) -> int:
        """Axis of the rows in the first operand."""
        assert self.axes[0] is not None
        return self.axes[0]


Answer = RowWise | RowCombination | str


def follow(op: Op, case: Case) -> Answer:
    """Return how an operator's rows depend on its operands, or why it is refused."""
    rule = next((_RULES[base] for base in type(op).__mro__ if base in _RULES), None)
    if rule is None and op.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST):
        rule = _broadcast
    if rule is None:
        return f"{op.name} has no rule for rows"
    if isinstance(rule, str):
        return rule
    others = case.axes[0] is None or any(axis is not None for axis in case.axes[1:])
    if others and rule not in (_broadcast, _concatenate):
        return "it combines rows with other rows"
    return refuses_blocks(op) or rule(op, case)


def _first(case: Case, axis: int, reads: Reads, op: Callable[[int], Op]) -> RowWise:
    """Return the answer for an operator that reads rows of the first operand, and the others completely."""
    return RowWise(axis, (reads, *(None for _ in case.operands[1:])), op)


def _same(op: Op, case: Case, axis: int | None = None) -> RowWise:
    """Return the answer for an operator with the same rows as the first operand and unchanged attributes."""
    return _first(case, case.axis if axis is None else axis, Reads(), lambda _: op)


def _replaced(numbers: Sequence[Any], index: int, number: Any) -> tuple[Any, ...]:
    return (*numbers[:index], number, *numbers[index + 1 :])


def _broadcast(op: Op, case: Case) -> Answer:
    found = {
        axis + case.result.rank - type.rank
        for type, axis in zip(case.operands, case.axes, strict=True)
        if type is not None and axis is not None
    }
    if len(found) != 1:
        return "the rows of its operands are along different axes"
    (axis,) = found
    length = case.result.shape[axis]
    for type, own in zip(case.operands, case.axes, strict=True):
        if type is None:
            continue
        place = axis - (case.result.rank - type.rank)
        extent = type.shape[place] if place >= 0 else 1
        if own is None and extent != 1:
            return f"it reads different elements of {type} for different rows"
        if own is not None and extent != length:
            return f"it reads the same element of {type} for all rows"
    reads = tuple(Reads() if own is not None else None for own in case.axes)
    return RowWise(axis, reads, lambda _: op)


def _image_axis(op: Op, axis: int) -> int | None:
    """Return 0 for the height of images, 1 for their width, and None for other axes."""
    return {image_axis(op, "H"): 0, image_axis(op, "W"): 1}.get(axis)


def _window(op: Conv2D | DepthwiseConv2D | AveragePool2D | MaxPool2D, case: Case) -> Answer:
    side = _image_axis(op, case.axis)
    if side is None:
        if case.axis == image_axis(op, "N") or isinstance(op, AveragePool2D | MaxPool2D):
            return _same(op, case)
        return RowCombination() if isinstance(op, Conv2D) else "it has different weights for each row"
    if isinstance(op, Conv2D | DepthwiseConv2D):
        weights = case.operands[1]
        assert weights is not None
        window = op.window(weights)
    else:
        window = op.window
    reads = Reads(window.strides[side], -window.padding[side][0], window.extent[side])
    bare = replace(op, padding=_replaced(op.padding, side, (0, 0)))
    return _first(case, case.axis, reads, lambda _: bare)


def _fully_connected(op: FullyConnected, case: Case) -> Answer:
    return _same(op, case) if case.axis == 0 else RowCombination()


def _batch_matmul(op: BatchMatmul, case: Case) -> Answer:
    rows, columns = case.x.rank - 2, case.x.rank - 1
    summed = rows if op.transpose_first else columns
    if case.axis == summed:
        return RowCombination()
    second = case.operands[1]
    assert second is not None
    place = case.axis - case.x.rank + second.rank
    if case.axis < rows and place >= 0 and second.shape[place] != 1:
        return "it multiplies each row by another matrix"
    # The own axes of both matrices are the last two; the axis of the rows is now in their place.
    return _same(op, case, (case.axis if case.axis < rows else rows) + case.result.rank - case.x.rank)


def _last_axis(op: Op, case: Case) -> Answer:
    if case.axis == case.x.rank - 1:
        return "it normalises along the axis: each result depends on all rows"
    return _same(op, case)


def _normalized(op: BatchNorm | LayerNorm, case: Case) -> Answer:
    # A layer is normalised over the axes from `axis` to the last one.
    if case.axis == op.axis or (isinstance(op, LayerNorm) and case.axis > op.axis):
        return "it normalises along the axis: each result depends on all rows"
    return _same(op, case)


def _cumsum(op: Cumsum, case: Case) -> Answer:
    if case.axis == op.axis:
        return "it accumulates along the axis: each result depends on all rows before"
    return _same(op, case)


def _without(axes: Sequence[int], axis: int) -> int:
    """Return the new index of an axis when other axes are removed."""
    return axis - sum(other < axis for other in axes)


def _extremum(op: ArgMax | ArgMin, case: Case) -> Answer:
    return RowCombination() if case.axis == op.axis else _same(op, case, _without([op.axis], case.axis))


def _reduction(op: Mean | Sum | ReduceMax | ReduceMin | ReduceProd, case: Case) -> Answer:
    if case.axis in op.axes:
        return RowCombination()
    return _same(op, case, case.axis if op.keep_dims else _without(op.axes, case.axis))


def _concatenate(op: Concatenate, case: Case) -> Answer:
    if any(axis is None for axis in case.axes):
        return "it concatenates rows with an operand without rows"
    if len(set(case.axes)) != 1:
        return "the rows of its operands are along different axes"
    if case.axis == op.axis:
        return "it concatenates along the axis"
    return RowWise(case.axis, tuple(Reads() for _ in case.operands), lambda _: op)


def _pad(op: Pad, case: Case) -> Answer:
    bare = replace(op, padding=_replaced(op.padding, case.axis, (0, 0)))
    return _first(case, case.axis, Reads(start=-op.padding[case.axis][0]), lambda _: bare)


def _strided_slice(op: StridedSlice, case: Case) -> Answer:
    axis = case.axis
    step = op.strides[axis] if op.size[axis] > 1 else 1
    if step < 0:
        return "it reverses the rows"

    def part(rows: int) -> Op:
        return replace(
            op,
            begin=_replaced(op.begin, axis, 0),
            size=_replaced(op.size, axis, rows),
            strides=_replaced(op.strides, axis, step),
        )

    return _first(case, axis, Reads(step, op.begin[axis]), part)


def _transpose(op: Transpose, case: Case) -> Answer:
    return _same(op, case, op.permutation.index(case.axis))


def _reshape(op: Reshape, case: Case) -> Answer:
    """Map rows to rows, several rows to one, or one row to several; otherwise all rows are combined."""
    shape, length = op.shape, case.x.shape[case.axis]
    outer, inner = math.prod(case.x.shape[: case.axis]), math.prod(case.x.shape[case.axis + 1 :])
    for axis, extent in enumerate(shape):
        after = math.prod(shape[axis + 1 :])
        if math.prod(shape[:axis]) != outer or extent == 1 or max(after, inner) % min(after, inner):
            continue
        stride, group = max(after // inner, 1), max(inner // after, 1)
        if extent * stride == length * group:
            return _first(case, axis, Reads(stride, 0, stride, group), partial(_with_rows, shape, axis))
    return RowCombination()


def _with_rows(shape: Shape, axis: int, rows: int) -> Op:
    return Reshape(_replaced(shape, axis, rows))


def _broadcast_to(op: BroadcastTo, case: Case) -> Answer:
    axis = case.axis + len(op.shape) - case.x.rank
    if op.shape[axis] != case.x.shape[case.axis]:
        return "it repeats a row"
    return _first(case, axis, Reads(), lambda rows: BroadcastTo(_replaced(op.shape, axis, rows)))


def _gather(op: Gather, case: Case) -> Answer:
    indices = case.operands[1]
    assert indices is not None
    if case.axis == op.axis:
        return "it selects rows by index"
    return _same(op, case, case.axis if case.axis < op.axis else case.axis + indices.rank - 1)


def _resize(op: ResizeNearestNeighbor | ResizeBilinear, case: Case) -> Answer:
    return _same(op, case) if _image_axis(op, case.axis) is None else "it interpolates between the rows"


Rule = Callable[[Any, Case], Answer]

_RECURRENT = "it is recurrent along the axis: each result depends on all rows before"
_QUANTIZED_BY_CONTENT = "it quantises rows with scales that depend on their content"

_RULES: Mapping[type[Op], Rule | str] = {
    **dict.fromkeys((Conv2D, DepthwiseConv2D, AveragePool2D, MaxPool2D), _window),
    **dict.fromkeys((HybridConv2D, HybridDepthwiseConv2D), _QUANTIZED_BY_CONTENT),
    **dict.fromkeys((Softmax, LogSoftmax, L2Normalization), _last_axis),
    **dict.fromkeys((BatchNorm, LayerNorm), _normalized),
    **dict.fromkeys((ArgMax, ArgMin), _extremum),
    **dict.fromkeys((Mean, Sum, ReduceMax, ReduceMin, ReduceProd, QuantizedReduceProd), _reduction),
    **dict.fromkeys((Lstm, HybridLstm, SequenceRnn, HybridSequenceRnn), _RECURRENT),
    **dict.fromkeys((ResizeNearestNeighbor, ResizeBilinear), _resize),
    BatchMatmul: _batch_matmul,
    BroadcastTo: _broadcast_to,
    Concatenate: _concatenate,
    Cumsum: _cumsum,
    DynamicQuantize: _QUANTIZED_BY_CONTENT,
    FullyConnected: _fully_connected,
    Gather: _gather,
    Pad: _pad,
    Reshape: _reshape,
    StridedSlice: _strided_slice,
    Transpose: _transpose,
    TransposeConv2D: "it adds each row to several rows of the result",
}
