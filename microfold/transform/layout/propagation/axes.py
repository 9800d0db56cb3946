"""Rules of lightly sensitive operators, which need some axes as whole axes."""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.quantized_reduce_prod import QuantizedReduceProd
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd
from microfold.transform.layout.propagation.frame import Frame
from microfold.transform.layout.propagation.rule import Answer, ReorderedNode, layout_rule

UNCLEAR = "the axes of its operand cannot be distinguished in the other order"


def _isolated(place: ReorderedNode, *axes: int, index: int = 0) -> Frame | str:
    """Return the operand's frame, with each of these axes as one axis of the source, or the refusal."""
    frame = place.frame(index)
    if frame is None:
        return UNCLEAR
    isolated = frame.isolated(lambda axis: axis in axes)
    if isinstance(isolated, str):
        return isolated
    lost = [axis for axis in axes if isolated.place_of(axis) is None]
    return f"axis {lost[0]}, of extent 1, does not exist in the other order" if lost else isolated


@layout_rule(Pad)
def pad(place: ReorderedNode) -> Answer:
    op = place.op
    assert isinstance(op, Pad)
    padded = [axis for axis, pair in enumerate(op.padding) if pair != (0, 0)]
    frame = _isolated(place, *padded)
    if isinstance(frame, str):
        return frame
    padding = [(0, 0)] * len(frame.groups)
    result = frame
    for axis in padded:
        padding[_place(frame, axis)] = op.padding[axis]
        result = result.resized(axis, place.out.shape[axis])
    source = place.emit(replace(op, padding=tuple(padding)), place.bring(0, frame))
    return place.result(source, result.arrangement)


@layout_rule(StridedSlice)
def strided_slice(place: ReorderedNode) -> Answer:
    op, shape = place.op, place.type(0).shape
    assert isinstance(op, StridedSlice)
    extents = zip(op.begin, op.size, op.strides, shape, strict=True)
    cut = [axis for axis, (*taken, extent) in enumerate(extents) if taken != [0, extent, 1]]
    frame = _isolated(place, *cut)
    if isinstance(frame, str):
        return frame
    begin, strides = [0] * len(frame.groups), [1] * len(frame.groups)
    result = frame
    for axis in cut:
        begin[_place(frame, axis)], strides[_place(frame, axis)] = op.begin[axis], op.strides[axis]
        result = result.resized(axis, op.size[axis])
    moved = StridedSlice(tuple(begin), result.shape, tuple(strides))
    return place.result(place.emit(moved, place.bring(0, frame)), result.arrangement)


@layout_rule(Concatenate)
def concatenate(place: ReorderedNode) -> Answer:
    """Use the order of the operand for which the fewest elements of the other operands have to move."""
    op = place.op
    assert isinstance(op, Concatenate)
    indices = range(len(place.node.inputs))
    best: tuple[int, Frame] | None = None
    frames = {index: _isolated(place, op.axis, index=index) for index in place.orders(indices)}
    for frame in frames.values():
        if isinstance(frame, str):
            continue
        cost = sum(place.cost(other, _part(place, frame, other)) for other in indices)
        best = (cost, frame) if best is None or cost < best[0] else best
    if best is None:
        return next((frame for frame in frames.values() if isinstance(frame, str)), UNCLEAR)
    cost, frame = best
    here = sum(place.type(index).size for index in indices if place.arranged(index) is not None)
    if place.gives_up(cost, here):
        return f"reordering its other operands would move {cost} elements to save {here}"
    parts = [place.bring(index, _part(place, frame, index)) for index in indices]
    source = place.emit(Concatenate(_place(frame, op.axis)), *parts)
    return place.result(source, frame.resized(op.axis, place.out.shape[op.axis]).arrangement)


def _part(place: ReorderedNode, frame: Frame, index: int) -> Frame:
    assert isinstance(place.op, Concatenate)
    axis = place.op.axis
    return frame.resized(axis, place.type(index).shape[axis])


@layout_rule(Mean, Sum, ReduceMax, ReduceMin, ReduceProd, QuantizedReduceProd)
def reduction(place: ReorderedNode) -> Answer:
    op = place.op
    assert isinstance(op, Mean | Sum | ReduceMax | ReduceMin | ReduceProd)
    frame = place.frame()
    if frame is None:
        return UNCLEAR
    sizes = frame.arrangement.sizes

    def is_reduced(factor: int) -> bool:
        return frame.axes[factor] in op.axes

    whole = frame.regrouped(lambda factor: is_reduced(factor) if sizes[factor] != 1 else None)
    gone = [
        index
        for index, factors in enumerate(whole.groups)
        if any(is_reduced(factor) and sizes[factor] != 1 for factor in factors)
    ]
    if not gone:
        return "it reduces axes of extent 1 only"
    summed = [factor for factor in frame.arrangement.order if is_reduced(factor) and sizes[factor] != 1]
    reorders = summed != sorted(summed)
    if reorders and isinstance(op, QuantizedReduceProd):
        return "it would round products in another order"
    adds = place.type(0).dtype.is_float and isinstance(op, Mean | Sum | ReduceProd)
    if reorders and adds and place.manner.numerics == "exact":
        return "it would add up floats in another order"
    source = place.emit(replace(op, axes=tuple(gone)), place.bring(0, whole))
    return place.result(source, whole.without(lambda axis: axis in op.axes))


@layout_rule(ArgMax, ArgMin)
def arg_extremum(place: ReorderedNode) -> Answer:
    op = place.op
    assert isinstance(op, ArgMax | ArgMin)
    frame = _isolated(place, op.axis)
    if isinstance(frame, str):
        return frame
    source = place.emit(replace(op, axis=_place(frame, op.axis)), place.bring(0, frame))
    return place.result(source, frame.without(lambda axis: axis == op.axis))


@layout_rule(Cumsum)
def cumsum(place: ReorderedNode) -> Answer:
    op = place.op
    assert isinstance(op, Cumsum)
    frame = _isolated(place, op.axis)
    if isinstance(frame, str):
        return frame
    source = place.emit(replace(op, axis=_place(frame, op.axis)), place.bring(0, frame))
    return place.result(source, frame.arrangement)


@layout_rule(Gather)
def gather(place: ReorderedNode) -> Answer:
    """Gather along an axis, with a vector of indices in their original order."""
    op = place.op
    assert isinstance(op, Gather)
    if place.type(1).rank != 1 or place.arranged(0) is None:
        return "its indices must be a vector in their original order"
    frame = _isolated(place, op.axis)
    if isinstance(frame, str):
        return frame
    moved = Gather(_place(frame, op.axis))
    source = place.emit(moved, place.bring(0, frame), place.operand(1))
    return place.result(source, frame.resized(op.axis, place.type(1).size).arrangement)


@layout_rule(Softmax, LogSoftmax, L2Normalization)
def along_last_axis(place: ReorderedNode) -> Answer:
    """Require that the last axis is also last in the other order: the operator has no axis attribute."""
    last = place.out.rank - 1
    frame = _isolated(place, last)
    if isinstance(frame, str):
        return frame
    if _place(frame, last) != len(frame.groups) - 1:
        return "it works along the last axis, which is not last in the other order"
    return place.result(place.emit(place.op, place.bring(0, frame)), frame.arrangement)


def _place(frame: Frame, axis: int) -> int:
    place = frame.place_of(axis)
    assert place is not None
    return place
