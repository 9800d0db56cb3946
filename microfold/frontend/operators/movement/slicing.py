"""Operators that take parts of a value: SLICE, STRIDED_SLICE, SPLIT, SPLIT_V, UNPACK."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.frontend.context import OperatorContext, Unsupported, imports
from microfold.frontend.operators.movement.shapes import one
from microfold.ir.node import Value
from microfold.ir.types import Shape
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice


@imports("SLICE")
def slice_(context: OperatorContext) -> None:
    x = context.input(0)
    begin, size = context.integers(1, "begin"), context.integers(2, "size")
    if not len(begin) == len(size) == x.type.rank:
        raise Unsupported(
            f"begin and size must name each axis of {x.type}; they are {list(begin)}, {list(size)}"
        )
    size = tuple(
        n - start if length == -1 else length
        for n, start, length in zip(x.type.shape, begin, size, strict=True)
    )
    context.require_same_quantization(x)
    context.finish(*context.emit(StridedSlice(begin, size, (1,) * x.type.rank), x))


@imports("STRIDED_SLICE")
def strided_slice(context: OperatorContext) -> None:
    """begin, end and strides as in Python's slices, with masks: one bit for each entry of the lists."""
    options = context.required_options("StridedSliceOptions")
    x = context.input(0)
    context.require_same_quantization(x)
    begin, end, strides = (
        context.integers(i, what) for i, what in enumerate(("begin", "end", "strides"), start=1)
    )
    if not len(begin) == len(end) == len(strides):
        raise Unsupported(
            f"begin, end and strides must be as many; they are {len(begin)}, {len(end)}, {len(strides)}"
        )
    begin_mask, end_mask = int(options.BeginMask()), int(options.EndMask())
    ellipsis_mask, new_axis_mask = int(options.EllipsisMask()), int(options.NewAxisMask())
    shrink_mask, offset = int(options.ShrinkAxisMask()), bool(options.Offset())
    if offset:
        raise Unsupported("an end relative to begin (offset) is not supported")
    starts: list[int] = []
    sizes: list[int] = []
    steps: list[int] = []
    shape: list[int] = []  # of the result: axes shrink and appear
    entries = len(begin)
    masks = [begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask]
    if any(not 0 <= mask < 1 << entries for mask in masks):
        raise Unsupported(f"masks must have a bit for each of {entries} slices at most; they are {masks}")
    named = sum(not (ellipsis_mask | new_axis_mask) >> i & 1 for i in range(entries))
    if named > x.type.rank or bin(ellipsis_mask).count("1") > 1:
        raise Unsupported(f"{named} slices and {bin(ellipsis_mask).count('1')} ellipses do not fit {x.type}")

    def whole_axes(count: int) -> None:
        for extent in x.type.shape[len(starts) : len(starts) + count]:
            starts.append(0)
            sizes.append(extent)
            steps.append(1)
            shape.append(extent)

    for i in range(entries):
        bit = 1 << i
        if ellipsis_mask & bit:
            whole_axes(x.type.rank - named)
        elif new_axis_mask & bit:
            shape.append(1)
        else:
            extent, step = x.type.shape[len(starts)], strides[i]
            if step == 0:
                raise Unsupported("strides must not be 0")
            start = None if begin_mask & bit else begin[i]
            if shrink_mask & bit:
                if step < 0:
                    raise Unsupported(
                        f"the stride of an axis taken at one index must be positive; it is {step}"
                    )
                start = begin[i] if start is not None else 0
                if not -extent <= start < extent:
                    raise Unsupported(f"index {start} must be in [{-extent}, {extent})")
                start, size = start % extent, 1
            else:
                taken = range(extent)[slice(start, None if end_mask & bit else end[i], step)]
                start, size = taken.start, len(taken)
                shape.append(size)
            starts.append(start)
            sizes.append(size)
            steps.append(step)
    whole_axes(x.type.rank - len(starts))
    finish_slices(context, x, [(tuple(starts), tuple(sizes), tuple(steps), tuple(shape))])


Slice = tuple[Shape, Shape, Shape, Shape]  # begin, size, strides, shape of the result


def finish_slices(context: OperatorContext, x: Value, slices: Sequence[Slice]) -> None:
    """The operator's outputs are these slices of `x`, in order."""
    results: list[Value] = []
    for index, (begin, size, strides, shape) in enumerate(slices):
        value = x
        reshaped = shape != size
        if size != x.type.shape or strides != (1,) * x.type.rank or not reshaped:
            name = context.name(index)
            op = StridedSlice(begin, size, strides)
            (value,) = context.emit(op, x, names=[f"{name}_slice" if reshaped else name])
        if reshaped:
            (value,) = context.emit(Reshape(shape), value, names=[context.name(index)])
        results.append(value)
    context.finish(*results)


def _part(x: Value, axis: int, begin: int, size: int) -> tuple[Shape, Shape, Shape]:
    starts = tuple(begin if i == axis else 0 for i in range(x.type.rank))
    sizes = tuple(size if i == axis else n for i, n in enumerate(x.type.shape))
    return starts, sizes, (1,) * x.type.rank


def _split(context: OperatorContext, x: Value, axis: int, parts: Sequence[int]) -> None:
    if len(parts) != len(context.raw.outputs):
        raise Unsupported(f"{len(parts)} parts must be as many as its outputs, {len(context.raw.outputs)}")
    context.require_same_quantization(x)
    slices: list[Slice] = []
    begin = 0
    for size in parts:
        starts, sizes, strides = _part(x, axis, begin, size)
        slices.append((starts, sizes, strides, sizes))
        begin += size
    if begin != x.type.shape[axis]:
        raise Unsupported(f"parts {list(parts)} must sum to {x.type.shape[axis]}")
    finish_slices(context, x, slices)


@imports("SPLIT")
def split(context: OperatorContext) -> None:
    x = context.input(1)
    (axis,) = one(context.integers(0, "axis"), "axis")
    axis, count = context.axis(axis, x.type.rank), len(context.raw.outputs)
    stated = int(context.required_options("SplitOptions").NumSplits())
    context.require_count("num_splits", stated, count, "outputs")
    if count == 0 or x.type.shape[axis] % count:
        raise Unsupported(f"axis {axis} of {x.type} does not divide into {count} equal parts")
    _split(context, x, axis, [x.type.shape[axis] // count] * count)


@imports("SPLIT_V")
def split_v(context: OperatorContext) -> None:
    x = context.input(0)
    parts = context.integers(1, "sizes")
    stated = int(context.required_options("SplitVOptions").NumSplits())
    context.require_count("num_splits", stated, len(context.raw.outputs), "outputs")
    (axis,) = one(context.integers(2, "axis"), "axis")
    axis = context.axis(axis, x.type.rank)
    if parts.count(-1) == 1:
        rest = x.type.shape[axis] - sum(n for n in parts if n != -1)
        parts = tuple(rest if n == -1 else n for n in parts)
    _split(context, x, axis, parts)


@imports("UNPACK")
def unpack(context: OperatorContext) -> None:
    options = context.required_options("UnpackOptions")
    x = context.input(0)
    axis = context.axis(int(options.Axis()), x.type.rank)
    context.require_count("num", int(options.Num()), len(context.raw.outputs), "outputs")
    if x.type.shape[axis] != len(context.raw.outputs):
        raise Unsupported(
            f"axis {axis} of {x.type} must be as long as its {len(context.raw.outputs)} outputs"
        )
    context.require_same_quantization(x)
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    finish_slices(context, x, [(*_part(x, axis, i, 1), shape) for i in range(x.type.shape[axis])])
