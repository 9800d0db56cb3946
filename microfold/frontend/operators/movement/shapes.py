"""Importers of operators that change shapes: RESHAPE, PAD, CONCATENATION, RESIZE_BILINEAR …"""

from __future__ import annotations

import math

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.raw import OperatorOptions
from microfold.ir.limits import MAX_RANK
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, Shape
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.window import Pair


@imports("RESHAPE")
def reshape(context: OperatorContext) -> None:
    """Reshape to the shape in the second input, else in the options, else of the output in the file."""
    x = context.input(0)
    options = context.options("ReshapeOptions")
    listed = vector(options, "NewShape") if options is not None else ()
    computed = context.optional(1)
    if computed is not None and context.known(1) is None:
        target = context.static_shape("target shape", computed.type.size)
    elif computed is not None:
        target = context.integers(1, "target shape")
    elif listed:
        target = listed
    else:
        target = context.declared_shape()
    finish_reshaped(context, x, resolve_shape(target, x.type.size))


def vector(options: OperatorOptions, field: str) -> tuple[int, ...]:
    """Return a vector of the options, with at most one element per axis."""
    length = int(getattr(options, f"{field}Length")())
    if not 0 <= length <= MAX_RANK:
        raise Unsupported(f"its options must have at most {MAX_RANK} axes; they have {length}")
    return tuple(int(getattr(options, field)(i)) for i in range(length))


def finish_reshaped(context: OperatorContext, x: Value, shape: Shape) -> None:
    """Finish with the input, reshaped."""
    x = context.with_declared_scale(x)
    context.finish(*context.emit(Reshape(shape), x))


def resolve_shape(target: Shape, elements: int) -> Shape:
    """Replace one -1 by the extent that yields the right number of elements."""
    known = math.prod(n for n in target if n != -1)
    if target.count(-1) > 1 or any(n < -1 for n in target):
        raise Unsupported(f"a target shape must have at most one -1; it is {list(target)}")
    if -1 not in target:
        return target
    if known == 0 or elements % known:
        raise Unsupported(f"{elements} elements do not match the target shape {list(target)}")
    return tuple(elements // known if n == -1 else n for n in target)


@imports("SQUEEZE")
def squeeze(context: OperatorContext) -> None:
    x = context.input(0)
    options = context.options("SqueezeOptions")
    named = vector(options, "SqueezeDims") if options is not None else ()
    axes = {context.axis(axis, x.type.rank) for axis in named}
    if not named:
        axes = {axis for axis, extent in enumerate(x.type.shape) if extent == 1}
    if any(x.type.shape[axis] != 1 for axis in axes):
        raise Unsupported(f"squeezed axes must have extent 1; axes {sorted(axes)} of {x.type} are squeezed")
    finish_reshaped(context, x, tuple(n for axis, n in enumerate(x.type.shape) if axis not in axes))


@imports("EXPAND_DIMS")
def expand_dims(context: OperatorContext) -> None:
    x = context.input(0)
    context.require_same_quantization(x)
    if context.known(1) is None:
        finish_reshaped(context, x, context.static_shape("axis", x.type.rank + 1))
        return
    (axis,) = one(context.integers(1, "axis"), "axis")
    axis = context.axis(axis, x.type.rank + 1)
    finish_reshaped(context, x, (*x.type.shape[:axis], 1, *x.type.shape[axis:]))


def one(numbers: tuple[int, ...], what: str) -> tuple[int]:
    """Return the only element of a list, as a tuple."""
    if len(numbers) != 1:
        raise Unsupported(f"its {what} must be one integer; it has {len(numbers)}")
    return (numbers[0],)


@imports("PAD", "PADV2")
def pad(context: OperatorContext) -> None:
    x, given = context.input(0), context.optional(2)
    if given is None:
        x = context.with_declared_scale(x)
    fill = float(context.zero_point(x))
    if given is None and fill and x.type.dtype is DType.INT16:
        raise Unsupported(
            f"without a fill value, an int16 zero point must be 0; it is {fill:g}: LiteRT fills "
            "with it, TFLM with 0",
            "quantise the model again",
        )
    if given is not None:
        context.require_same_quantization(x)
        if given.type.size != 1 or given.type.dtype is not x.type.dtype:
            raise Unsupported(f"its fill value must be one {x.type.dtype.value}; it is {given.type}")
        array = context.known(2)
        if array is None:
            context.finish(_laid_into(context, x, given))
            return
        if is_inexact(array):
            context.finish(_laid_into(context, x, given))
            return
        fill = exact_fill(array)
    if context.known(1) is None:
        array = np.array(fill).astype(x.type.dtype.numpy)
        scalar = context.add_constant(array, f"{context.name()}_fill", x.type.element)
        context.finish(_laid_into(context, x, scalar))
        return
    context.finish(*context.emit(Pad(padding_pairs(context, x), fill), x))


def is_inexact(number: Array) -> bool:
    """Return whether a number is an integer that double cannot represent (64-bit types only)."""
    return number.dtype.kind in "iu" and int(number.reshape(())) != int(float(number.reshape(())))


def exact_fill(number: Array) -> float:
    """Return a number as the fill of a pad.

    Raises:
        Unsupported: double cannot represent the number.
    """
    if is_inexact(number):
        raise Unsupported(f"its fill must be exact as a double (up to 2^53); it is {number.reshape(())}")
    return float(number.reshape(()))


def _laid_into(context: OperatorContext, x: Value, fill: Value) -> Value:
    """Write a value into a tensor of fills, for computed paddings or fills. Leading padding is clamped."""
    name, rank = context.name(), x.type.rank
    if context.known(1) is None:
        shape, padding = context.static_shape("padding", rank), context.input(1)
        if padding.type.shape != (rank, 2):
            raise Unsupported(
                f"its padding must have two numbers for each axis of {x.type}; it is {padding.type}"
            )
        (column,) = context.emit(StridedSlice((0, 0), (rank, 1), (1, 1)), padding, names=[f"{name}_column"])
        (start,) = context.emit(Reshape((rank,)), column, names=[f"{name}_start"])
    else:
        pairs = padding_pairs(context, x)
        if any(min(pair) < 0 for pair in pairs):
            raise Unsupported(f"its padding must not be negative; it is {pairs}")
        shape = tuple(n + sum(pair) for n, pair in zip(x.type.shape, pairs, strict=True))
        start = context.add_constant(np.array([pair[0] for pair in pairs], np.int32), f"{name}_start")
    (scalar,) = context.emit(Reshape(()), fill, names=[f"{name}_scalar"])
    (filled,) = context.emit(BroadcastTo(shape), scalar, names=[f"{name}_filled"])
    return context.emit(DynamicUpdateSlice(), filled, x, start)[0]


def padding_pairs(context: OperatorContext, x: Value) -> tuple[Pair, ...]:
    """Return input 1, [rank, 2]: the number of elements before and after the value on each axis."""
    numbers = context.integers(1, "padding")
    if len(numbers) != 2 * x.type.rank:
        raise Unsupported(
            f"its padding must have two numbers for each axis of {x.type}; it has {len(numbers)}"
        )
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


@imports("CONCATENATION")
def concatenation(context: OperatorContext) -> None:
    options = context.required_options("ConcatenationOptions")
    values = context.inputs()
    if values[0].type.dtype is DType.INT16:
        copied = [context.with_declared_scale(value) for value in values]
        values = values if any(context.zero_point(value) for value in copied) else copied
    context.require_same_quantization(*values)
    axis = context.axis(int(options.Axis()), values[0].type.rank)
    (result,) = context.emit(Concatenate(axis), *values)
    context.finish_activated(result, int(options.FusedActivationFunction()))


@imports("PACK")
def pack(context: OperatorContext) -> None:
    options = context.required_options("PackOptions")
    values = context.inputs()
    context.require_count("values_count", int(options.ValuesCount()), len(values), "inputs")
    context.require_same_quantization(*values)
    shape = values[0].type.shape
    axis = context.axis(int(options.Axis()), len(shape) + 1)
    if any(value.type.shape != shape for value in values):
        raise Unsupported(
            f"its inputs must have one shape; they are {', '.join(str(v.type) for v in values)}"
        )
    expanded = [
        context.emit(Reshape((*shape[:axis], 1, *shape[axis:])), value, names=[f"{value.name}_expanded"])[0]
        for value in values
    ]
    context.finish(*context.emit(Concatenate(axis), *expanded))


@imports("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest_neighbor(context: OperatorContext) -> None:
    options = context.required_options("ResizeNearestNeighborOptions")
    x = context.input(0)
    x = context.with_declared_scale(x)
    op = ResizeNearestNeighbor(
        image_size(context), bool(options.AlignCorners()), bool(options.HalfPixelCenters())
    )
    context.finish(*context.emit(op, x))


@imports("RESIZE_BILINEAR")
def resize_bilinear(context: OperatorContext) -> None:
    options = context.required_options("ResizeBilinearOptions")
    x = context.input(0)
    x = context.with_declared_scale(x)
    op = ResizeBilinear(image_size(context), bool(options.AlignCorners()), bool(options.HalfPixelCenters()))
    context.finish(*context.emit(op, x))


def image_size(context: OperatorContext) -> Pair:
    """Return the new height and width, from input 1."""
    if context.known(1) is None:
        shape, x = context.static_shape("size", 4), context.input(0)
        if (shape[0], shape[3]) != (x.type.shape[0], x.type.shape[-1]):
            raise Unsupported(f"the shape of its result must match {x.type}; it is {list(shape)}")
        return (shape[1], shape[2])
    size = context.integers(1, "size")
    if len(size) != 2:
        raise Unsupported(f"its size must be height and width; it is {list(size)}")
    return (size[0], size[1])


@imports("SHAPE")
def shape(context: OperatorContext) -> None:
    """Return the shape as a constant, because shapes are static."""
    options, dtype = context.options("ShapeOptions"), context.element().dtype
    if options is not None:
        context.require_type("out_type", int(options.OutType()))
    if dtype not in (DType.INT32, DType.INT64):
        raise Unsupported(f"its result must be int32 or int64; it is {dtype.value}")
    array = np.array(context.input(0).type.shape, dtype.numpy)
    context.finish(context.add_constant(array, context.name()))
