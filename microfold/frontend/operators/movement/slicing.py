"""Importers of operators that return parts of a value: SLICE, STRIDED_SLICE, SPLIT, SPLIT_V, UNPACK."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.movement.shapes import one
from microfold.frontend.raw import OperatorOptions
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType, Shape
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.dynamic_slice import DynamicSlice
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice


@imports("SLICE")
def slice_(context: OperatorContext) -> None:
    x = context.input(0)
    if context.known(1) is None or context.known(2) is None:
        _slice_of_computed_place(context, x)
        return
    begin, size = context.integers(1, "begin"), context.integers(2, "size")
    if not len(begin) == len(size) == x.type.rank:
        raise Unsupported(
            f"begin and size must have a number per axis of {x.type}; they are {list(begin)}, {list(size)}"
        )
    size = tuple(
        n - start if length == -1 else length
        for n, start, length in zip(x.type.shape, begin, size, strict=True)
    )
    x = context.with_declared_scale(x)
    context.finish(*context.emit(StridedSlice(begin, size, (1,) * x.type.rank), x))


# Most slices of computed lengths write rows of lists, in a form unknown to `frontend/list_writes.py`.
_OPEN_LENGTH = (
    "convert with converter._experimental_enable_dynamic_update_slice = True if it writes a row of a list "
    "(recurrent layers, tf.map_fn, tf.TensorArray), or unroll the loop (Keras: unroll=True)"
)


def _slice_of_computed_place(context: OperatorContext, x: Value) -> None:
    """Import a slice with a computed begin. Its size is the shape of the result in the file."""
    places = [context.input(i).type.shape for i in (1, 2)]
    if places != [(x.type.rank,)] * 2:
        raise Unsupported(
            f"begin and size must have a number per axis of {x.type}; their shapes are {places}"
        )
    shape, named = context.static_shape("begin or size", x.type.rank, hint=_OPEN_LENGTH), context.known(2)
    if named is not None and any(n not in (-1, m) for n, m in zip(named.reshape(-1), shape, strict=False)):
        raise Unsupported(
            f"its size must equal the shape of its result, {list(shape)}; it is {named.tolist()}"
        )
    x = context.with_declared_scale(x)
    context.finish(*context.emit(DynamicSlice(shape), x, context.input(1)))


@imports("STRIDED_SLICE")
def strided_slice(context: OperatorContext) -> None:
    """Import a slice like Python's, by begin, end and strides, with masks of one bit per list entry."""
    options = context.required_options("StridedSliceOptions")
    x = context.input(0)
    x = context.with_declared_scale(x)
    if any(context.known(i) is None for i in (1, 2, 3)):
        _strided_slice_of_computed_place(context, options, x)
        return
    begin, end, strides = (
        context.integers(i, what) for i, what in enumerate(("begin", "end", "strides"), start=1)
    )
    if not len(begin) == len(end) == len(strides):
        raise Unsupported(
            f"begin, end and strides must be equally long; they have {len(begin)}, {len(end)}, {len(strides)}"
        )
    begin_mask, end_mask = int(options.BeginMask()), int(options.EndMask())
    ellipsis_mask, new_axis_mask = int(options.EllipsisMask()), int(options.NewAxisMask())
    shrink_mask, offset = int(options.ShrinkAxisMask()), bool(options.Offset())
    if offset:
        raise Unsupported("an end relative to begin (offset) is not supported")
    starts: list[int] = []
    sizes: list[int] = []
    steps: list[int] = []
    shape: list[int] = []  # shape of the result, in which axes are removed and added
    entries = len(begin)
    masks = [begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_mask]
    if any(not 0 <= mask < 1 << entries for mask in masks):
        raise Unsupported(f"masks must have at most a bit for each of {entries} slices; they are {masks}")
    named = sum(not (ellipsis_mask | new_axis_mask) >> i & 1 for i in range(entries))
    if named > x.type.rank or bin(ellipsis_mask).count("1") > 1:
        raise Unsupported(
            f"{named} slices and {bin(ellipsis_mask).count('1')} ellipses do not match {x.type}"
        )

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


def _strided_slice_of_computed_place(context: OperatorContext, options: OperatorOptions, x: Value) -> None:
    """Import a slice with a computed begin, and the size in the file. Negative begins count from the end."""
    strides, begin, name, rank = context.integers(3, "strides"), context.input(1), context.name(), x.type.rank
    begin_mask, shrink_mask = int(options.BeginMask()), int(options.ShrinkAxisMask())
    if options.Offset() or options.EllipsisMask() or options.NewAxisMask() or any(n != 1 for n in strides):
        raise Unsupported(
            "its begin or end is computed by the model, so all strides must be 1, and no axis must be "
            f"new; strides are {list(strides)}, the masks of ellipses {options.EllipsisMask()}, of new axes "
            f"{options.NewAxisMask()}"
        )
    entries = len(strides)
    shapes = (context.input(1).type.shape, context.input(2).type.shape)
    if shapes != ((entries,), (entries,)) or not 1 <= entries <= rank or shrink_mask >> entries:
        raise Unsupported(
            f"begin and end must have {entries} numbers, for axes of {x.type}; they are {shapes}"
        )
    kept = [axis for axis in range(rank) if not shrink_mask >> axis & 1]
    shape = context.static_shape("begin or end", len(kept))
    size = tuple(shape[kept.index(axis)] if axis in kept else 1 for axis in range(rank))
    if begin.type.dtype is not DType.INT32:
        (begin,) = context.emit(Cast(DType.INT32), begin, names=[f"{name}_begin"])
    used = np.array([not begin_mask >> axis & 1 for axis in range(entries)])
    plain, zero = ElementType(DType.INT32), context.add_constant(np.zeros((), np.int32), f"{name}_none")
    extents = context.add_constant(np.array(x.type.shape[:entries], np.int32), f"{name}_extents")
    (is_negative,) = context.emit(Compare("less"), begin, zero, names=[f"{name}_is_negative"])
    (from_end,) = context.emit(Add(plain), begin, extents, names=[f"{name}_from_end"])
    (start,) = context.emit(Select(), is_negative, from_end, begin, names=[f"{name}_place"])
    if not used.all():
        mask = context.add_constant(used, f"{name}_used")
        (start,) = context.emit(Select(), mask, start, zero, names=[f"{name}_masked"])
    if entries < rank:
        (start,) = context.emit(Pad(((0, rank - entries),), 0.0), start, names=[f"{name}_start"])
    names = [name if len(kept) == rank else f"{name}_slice"]
    (value,) = context.emit(DynamicSlice(size), x, start, names=names)
    if len(kept) < rank:
        (value,) = context.emit(Reshape(shape), value)
    context.finish(value)


Slice = tuple[Shape, Shape, Shape, Shape]  # begin, size, strides, shape of the result


def finish_slices(context: OperatorContext, x: Value, slices: Sequence[Slice]) -> None:
    """Finish with these slices of `x` as outputs, in order."""
    results: list[Value] = []
    for index, (begin, size, strides, shape) in enumerate(slices):
        value = context.with_declared_scale(x, index)
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
        raise Unsupported(
            f"the number of parts, {len(parts)}, must equal its outputs, {len(context.raw.outputs)}"
        )
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
        raise Unsupported(f"axis {axis} of {x.type} must divide into {count} equal parts")
    _split(context, x, axis, [x.type.shape[axis] // count] * count)


@imports("SPLIT_V")
def split_v(context: OperatorContext) -> None:
    x = context.input(0)
    stated = int(context.required_options("SplitVOptions").NumSplits())
    context.require_count("num_splits", stated, len(context.raw.outputs), "outputs")
    (axis,) = one(context.integers(2, "axis"), "axis")
    axis = context.axis(axis, x.type.rank)
    if context.known(1) is None:
        count = len(context.raw.outputs)
        parts = tuple(context.static_shape("sizes", x.type.rank, i)[axis] for i in range(count))
    else:
        parts = context.integers(1, "sizes")
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
            f"axis {axis} of {x.type} must have the length {len(context.raw.outputs)}, one per output"
        )
    context.require_same_quantization(x)
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    finish_slices(context, x, [(*_part(x, axis, i, 1), shape) for i in range(x.type.shape[axis])])
