"""Bands: some rows of an operator's result, computed from rows of its operands.

A band of an operator on images is the same operator on a smaller image, without padding above and below::

    reference(x)[:, start:stop] == band.op.reference(band.operands[0].take(x))

If windows exceed the image at the top or bottom, the smaller image has rows of padding there, filled with a
value that the operator treats as padding. Bands of equal size are therefore the same operator on the same
type at every position, and a kernel for images also computes bands.

An operator without a rule in this module, or whose rule does not apply, has no bands; a reason is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.op import Op, Pattern
from microfold.ir.types import Array, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If, While
from microfold.ops.control.loop import LimitedWhile, Loop
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.detection_postprocess import DetectionPostprocess
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize
from microfold.ops.external.compiler_region import CompilerBegin, CompilerEnd
from microfold.ops.external.custom_call import CustomCall
from microfold.ops.external.ethos_u import EthosU
from microfold.ops.fully_connected.blockwise_fully_connected import BlockwiseFullyConnected
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.fully_connected.hybrid_fully_connected import HybridFullyConnected
from microfold.ops.fully_connected.legacy_fully_connected import LegacyFullyConnected
from microfold.ops.image import refuses_layout
from microfold.ops.movement.bitcast import Bitcast
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.dynamic_slice import DynamicSlice
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.gather_nd import GatherNd
from microfold.ops.movement.layout_transform import LayoutTransform
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.scatter_nd import ScatterNd
from microfold.ops.movement.shift_in import ShiftIn
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.non_max_suppression import NonMaxSuppression
from microfold.ops.normalize.batch_norm import BatchNorm
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.layer_norm import LayerNorm
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.normalize.standardize import Standardize
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.recurrent.hybrid_lstm import HybridLstm
from microfold.ops.recurrent.hybrid_sequence_rnn import HybridSequenceRnn
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.lstm_8x8_16 import Lstm8x8To16
from microfold.ops.recurrent.sequence_rnn import SequenceRnn
from microfold.ops.recurrent.svdf import Svdf
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.quantized_reduce_prod import QuantizedReduceProd
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd
from microfold.ops.reduce.top_k import TopK
from microfold.ops.signal.signal_op import SignalOp
from microfold.ops.window import Window

ROWS = 1  # axis of NHWC images
Rows = tuple[int, int]  # first row, and the one after the last
Operands = Sequence[TensorType | None]


class OperandRows(Struct, frozen=True):
    """Rows of an operand that a band reads.

    Attributes:
        start, stop: rows of the operand, from `start` to before `stop`.
        above, below: number of padding rows before and after them.
        fill: value of each element of the padding, in the operand's own representation.
    """

    start: int
    stop: int
    above: int = 0
    below: int = 0
    fill: float = 0.0

    @property
    def count(self) -> int:
        """Number of rows of the band's operand, including padding."""
        return self.above + self.stop - self.start + self.below

    @property
    def padded(self) -> bool:
        return self.above + self.below > 0

    def type(self, x: TensorType) -> TensorType:
        """Return the type of the band's operand, for an operand of type `x`."""
        axis = _row_axis(x)
        return x.with_shape((*x.shape[:axis], self.count, *x.shape[axis + 1 :]))

    def take(self, x: Array) -> Array:
        """Return the band's operand."""
        axis = x.ndim - 3
        padding = [(self.above, self.below) if i == axis else (0, 0) for i in range(x.ndim)]
        rows = x[(slice(None),) * axis + (slice(self.start, self.stop),)]
        return np.pad(rows, padding, constant_values=x.dtype.type(self.fill))


class Band(Struct, frozen=True):
    """Some rows of an operator's result.

    Attributes:
        op: operator that computes only these rows from `operands`.
        operands: rows that it reads of each operand of the original operator; None if it reads all of the
            operand, or if the operand is absent.
    """

    op: Op
    operands: tuple[OperandRows | None, ...]


def band(op: Op, operands: Operands, rows: Rows) -> Band | str:
    """Return the band that computes some rows of an operator's result, or the reason why there is none.

    Args:
        operands: types of the operands of the whole operator.
        rows: rows of the result; at least one.
    """
    reason = refuses_bands(op)
    if reason is not None:
        return reason
    results = op.infer_all(operands)
    if len(results) != 1 or results[0].rank != 4:
        return f"its result must be an image [1, H, W, C]; it is {', '.join(map(str, results))}"
    images, height, *_ = results[0].shape
    if images != 1:
        return f"rows must be those of one image; its result has {images}"
    if not 0 <= rows[0] < rows[1] <= height:
        raise ValueError(f"{op.name}: rows must be in [0, {height}); they are {rows[0]} to {rows[1]}")
    found = _rule(op)(op, operands, rows)
    if isinstance(found, str):
        return found
    for operand, part in zip(operands, found.operands, strict=True):
        if operand is not None and part is not None:
            axis = _row_axis(operand)
            if math.prod(operand.shape[:axis]) != 1:
                return f"rows must be those of one image; it reads {operand}"
            if operand.quant is not None and operand.quant.axis == axis:
                return "the scales of an operand vary along its rows"
    return found


def refuses_bands(op: Op) -> str | None:
    """Return the reason why the operator can never be streamed; None if it can be."""
    if op.is_view:
        return "it is a view: its result shares the memory of its operand"
    for kind, reason in REFUSED.items():
        if isinstance(op, kind):
            return reason
    if op.pattern not in (Pattern.ELEMENTWISE, Pattern.BROADCAST) and not isinstance(op, tuple(RULES)):
        return f"there is no rule for {op.name}"
    return refuses_layout(op)


Rule = Callable[[Op, Operands, Rows], "Band | str"]


def _rule(op: Op) -> Rule:
    return next((RULES[kind] for kind in type(op).__mro__ if kind in RULES), _elementwise)


def row_pitch(x: TensorType) -> int:
    """Return the distance between two rows of an image, in bytes."""
    return x.nbytes // x.shape[_row_axis(x)]


def _row_axis(x: TensorType) -> int:
    """Return the axis of the rows; operands that broadcast may lack the axis of images."""
    return x.rank - 3


def _image(operands: Operands) -> TensorType:
    """Return the first operand."""
    x = operands[0]
    assert x is not None
    return x


def _with_first(op: Op, part: OperandRows, operands: Operands) -> Band:
    """Return a band that reads rows of the first operand, and all other operands whole."""
    return Band(op, (part, *(None for _ in operands[1:])))


def _padded_rows(first: int, last: int, height: int, fill: float) -> OperandRows:
    """Return rows `first` to before `last`; rows outside of [0, height) are padding."""
    start, stop = (min(max(row, 0), height) for row in (first, last))
    above = min(last, 0) - min(first, 0)
    below = max(last, height) - max(first, height)
    return OperandRows(start, stop, above, below, fill)


def _zero(x: TensorType) -> float:
    """Return the representation of 0."""
    return 0.0 if x.quant is None else float(x.quant.zero_point)


def _elementwise(op: Op, operands: Operands, rows: Rows) -> Band:
    """Return a band that reads the same rows; an operand that broadcasts over rows is read whole."""
    height = op.infer_all(operands)[0].shape[ROWS]
    parts = [
        OperandRows(*rows) if x is not None and x.rank >= 3 and x.shape[_row_axis(x)] == height else None
        for x in operands
    ]
    return Band(op, tuple(parts))


def _same_rows(op: Op, operands: Operands, rows: Rows) -> Band:
    """Return a band that reads the same rows of the first operand, with unchanged attributes."""
    return _with_first(op, OperandRows(*rows), operands)


def _span(window: Window, rows: Rows) -> Rows:
    """Return the rows that windows cover; they may be outside of the image."""
    step, top = window.strides[0], window.padding[0][0]
    return rows[0] * step - top, (rows[1] - 1) * step - top + window.extent[0]


def _convolution(op: Op, operands: Operands, rows: Rows) -> Band:
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    x, weights = operands[:2]
    assert x is not None and weights is not None
    part = _padded_rows(*_span(op.window(weights), rows), x.shape[ROWS], _zero(x))
    return _with_first(replace(op, padding=((0, 0), op.padding[1])), part, operands)


def _max_pool2d(op: Op, operands: Operands, rows: Rows) -> Band:
    assert isinstance(op, MaxPool2D)
    x = _image(operands)
    lowest = -math.inf if x.dtype.is_float else x.dtype.range[0]
    part = _padded_rows(*_span(op.window, rows), x.shape[ROWS], lowest)
    return _with_first(replace(op, padding=((0, 0), op.padding[1])), part, operands)


def _average_pool2d(op: Op, operands: Operands, rows: Rows) -> Band | str:
    """Return a band; a window over the edge is a separate, smaller band, because padding is ignored."""
    assert isinstance(op, AveragePool2D)
    part = _padded_rows(*_span(op.window, rows), _image(operands).shape[ROWS], 0)
    size = op.size
    if part.padded:
        if rows[1] - rows[0] > 1:
            return "its windows over the edge of the image average fewer rows, so each is a separate band"
        part = OperandRows(part.start, part.stop)
        size = part.count, op.size[1]
    return _with_first(replace(op, size=size, padding=((0, 0), op.padding[1])), part, operands)


def _transpose_conv2d(op: Op, operands: Operands, rows: Rows) -> Band:
    """Return a band; rows outside of the image are padded with zeros, which contribute nothing."""
    assert isinstance(op, TransposeConv2D)
    x, weights = operands[:2]
    assert x is not None and weights is not None
    step, size = op.strides[0], weights.shape[1]
    start, stop = (row + op.offset[0] for row in rows)  # rows of the untrimmed result
    # First row that contributes. If that row is after the start, so that none contributes, the row before it.
    first = min(-((size - 1 - start) // step), start // step)
    part = _padded_rows(first, (stop - 1) // step + 1, x.shape[ROWS], _zero(x))
    offset = start - first * step, op.offset[1]
    return _with_first(replace(op, offset=offset, size=(rows[1] - rows[0], op.size[1])), part, operands)


def _concatenate(op: Op, operands: Operands, rows: Rows) -> Band | str:
    assert isinstance(op, Concatenate)
    if op.axis == ROWS:
        return "it concatenates along the rows"
    return Band(op, tuple(OperandRows(*rows) for _ in operands))


def _pad(op: Op, operands: Operands, rows: Rows) -> Band:
    assert isinstance(op, Pad)
    top = op.padding[ROWS][0]
    part = _padded_rows(rows[0] - top, rows[1] - top, _image(operands).shape[ROWS], op.fill)
    padding = (*op.padding[:ROWS], (0, 0), *op.padding[ROWS + 1 :])
    return _with_first(replace(op, padding=padding), part, operands)


def _resize_nearest_neighbor(op: Op, operands: Operands, rows: Rows) -> Band | str:
    assert isinstance(op, ResizeNearestNeighbor)
    x = _image(operands)
    sources = op.sources(x)[0][slice(*rows)]
    part = OperandRows(sources[0], sources[-1] + 1)
    smaller = replace(op, size=(rows[1] - rows[0], op.size[1]))
    if smaller.sources(part.type(x))[0] != tuple(row - part.start for row in sources):
        return f"{part.count} rows, resized separately, are not the rows {rows[0]} to {rows[1] - 1}"
    return _with_first(smaller, part, operands)


def _strided_slice(op: Op, operands: Operands, rows: Rows) -> Band:
    assert isinstance(op, StridedSlice)
    step = op.strides[ROWS]
    ends = [op.begin[ROWS] + row * step for row in (rows[0], rows[1] - 1)]
    part = OperandRows(min(ends), max(ends) + 1)
    begin = (*op.begin[:ROWS], ends[0] - part.start, *op.begin[ROWS + 1 :])
    size = (*op.size[:ROWS], rows[1] - rows[0], *op.size[ROWS + 1 :])
    return _with_first(replace(op, begin=begin, size=size), part, operands)


def _broadcast_to(op: Op, operands: Operands, rows: Rows) -> Band:
    assert isinstance(op, BroadcastTo)
    shape = (*op.shape[:ROWS], rows[1] - rows[0], *op.shape[ROWS + 1 :])
    return replace(_elementwise(op, operands, rows), op=replace(op, shape=shape))


def _transpose(op: Op, operands: Operands, rows: Rows) -> Band | str:
    assert isinstance(op, Transpose)
    if op.permutation[: ROWS + 1] != (0, ROWS):
        return "its rows come from another axis"
    return _same_rows(op, operands, rows)


def _gather(op: Op, operands: Operands, rows: Rows) -> Band | str:
    assert isinstance(op, Gather)
    if _image(operands).rank != 4 or op.axis <= ROWS:
        return "it is not known which rows it reads"
    return _same_rows(op, operands, rows)


def _reduction(op: Op, operands: Operands, rows: Rows) -> Band | str:
    assert isinstance(op, Mean | Sum | ReduceMax | ReduceMin | ReduceProd)
    if not op.keep_dims or ROWS in op.axes:
        return "it reduces all rows together"
    return _same_rows(op, operands, rows)


def _along_axis(op: Op, operands: Operands, rows: Rows) -> Band | str:
    assert isinstance(op, BatchNorm | Cumsum | LayerNorm)
    # LayerNorm normalises from this axis to the last one.
    if op.axis == ROWS or (isinstance(op, LayerNorm) and op.axis < ROWS):
        return "it computes along the rows"
    return _same_rows(op, operands, rows)


RULES: Mapping[type[Op], Rule] = {
    AveragePool2D: _average_pool2d,
    BatchNorm: _along_axis,
    BroadcastTo: _broadcast_to,
    Concatenate: _concatenate,
    Conv2D: _convolution,
    Cumsum: _along_axis,
    DepthwiseConv2D: _convolution,
    Gather: _gather,
    L2Normalization: _same_rows,
    Standardize: _same_rows,
    LayerNorm: _along_axis,
    LogSoftmax: _same_rows,
    MaxPool2D: _max_pool2d,
    Mean: _reduction,
    Pad: _pad,
    ReduceMax: _reduction,
    ReduceMin: _reduction,
    ReduceProd: _reduction,
    QuantizedReduceProd: _reduction,
    ResizeNearestNeighbor: _resize_nearest_neighbor,
    Softmax: _same_rows,
    StridedSlice: _strided_slice,
    Sum: _reduction,
    Transpose: _transpose,
    TransposeConv2D: _transpose_conv2d,
}

_NO_IMAGE = "it does not compute images"
_QUANTIZED_WHOLE = "all rows of its image are quantised at once"
_COMPUTED_POSITIONS = "the position of its rows is computed at run time"
REFUSED: Mapping[type[Op], str] = {
    ArgMax: "it drops an axis",
    ArgMin: "it drops an axis",
    BatchMatmul: _NO_IMAGE,
    BlockwiseFullyConnected: _NO_IMAGE,
    Bitcast: "its axes depend on the sizes of the types",
    Call: "it is a graph of its own",
    CompilerBegin: "it is the boundary of a region of another compiler",
    CompilerEnd: "it is the boundary of a region of another compiler",
    CustomCall: "it is code of the firmware",
    DetectionPostprocess: _NO_IMAGE,
    DynamicSlice: _COMPUTED_POSITIONS,
    DynamicQuantize: "its scale depends on all rows (the model is quantised dynamically)",
    DynamicUpdateSlice: _COMPUTED_POSITIONS,
    EthosU: "it is already compiled",
    FullyConnected: _NO_IMAGE,
    GatherNd: _COMPUTED_POSITIONS,
    HybridConv2D: _QUANTIZED_WHOLE,
    HybridDepthwiseConv2D: _QUANTIZED_WHOLE,
    HybridFullyConnected: _NO_IMAGE,
    HybridLstm: _NO_IMAGE,
    HybridSequenceRnn: _NO_IMAGE,
    If: "it is a graph of its own",
    LayoutTransform: "its rows come from other axes",
    LegacyFullyConnected: _NO_IMAGE,
    LimitedWhile: "it is a graph of its own",
    Loop: "it is a graph of its own",
    Lstm: _NO_IMAGE,
    Lstm8x8To16: _NO_IMAGE,
    NonMaxSuppression: _NO_IMAGE,
    ResizeBilinear: "the positions between two rows depend on the height of the image",
    ScatterNd: _COMPUTED_POSITIONS,
    SequenceRnn: _NO_IMAGE,
    ShiftIn: "it keeps rows of earlier runs",
    SignalOp: _NO_IMAGE,
    Svdf: _NO_IMAGE,
    TopK: "it has two results",
    While: "it is a graph of its own",
}
