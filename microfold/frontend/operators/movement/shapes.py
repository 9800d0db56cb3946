"""Operators that move elements or look at them under another shape."""

from __future__ import annotations

import math

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported, imports
from microfold.frontend.reader import OperatorOptions
from microfold.ir.limits import MAX_RANK
from microfold.ir.node import Value
from microfold.ir.types import DType, Shape
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.transpose import Transpose
from microfold.ops.window import Pair


@imports("RESHAPE")
def reshape(context: OperatorContext) -> None:
    """The target shape is the second input; without one, the options; without those, the declared shape."""
    x = context.input(0)
    options = context.options("ReshapeOptions")
    listed = vector(options, "NewShape") if options is not None else ()
    if context.optional(1) is not None:
        target = context.integers(1, "target shape")
    elif listed:
        target = listed
    else:
        target = context.declared_shape()
    finish_reshaped(context, x, resolve_shape(target, x.type.size))


def vector(options: OperatorOptions, field: str) -> tuple[int, ...]:
    """A vector of the options: something for each axis."""
    length = int(getattr(options, f"{field}Length")())
    if not 0 <= length <= MAX_RANK:
        raise Unsupported(f"its options may name {MAX_RANK} axes; they name {length}")
    return tuple(int(getattr(options, field)(i)) for i in range(length))


def finish_reshaped(context: OperatorContext, x: Value, shape: Shape) -> None:
    """The operator's output is its input under another shape."""
    context.require_same_quantization(x)
    context.finish(*context.emit(Reshape(shape), x))


def resolve_shape(target: Shape, elements: int) -> Shape:
    """Replace one -1 by what makes the number of elements right."""
    known = math.prod(n for n in target if n != -1)
    if target.count(-1) > 1 or any(n < -1 for n in target):
        raise Unsupported(f"a target shape may have one -1; it is {list(target)}")
    if -1 not in target:
        return target
    if known == 0 or elements % known:
        raise Unsupported(f"{elements} elements do not fit the target shape {list(target)}")
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
    (axis,) = one(context.integers(1, "axis"), "axis")
    axis = context.axis(axis, x.type.rank + 1)
    finish_reshaped(context, x, (*x.type.shape[:axis], 1, *x.type.shape[axis:]))


def one(numbers: tuple[int, ...], what: str) -> tuple[int]:
    """The only element of a list."""
    if len(numbers) != 1:
        raise Unsupported(f"its {what} must be one integer; it has {len(numbers)}")
    return (numbers[0],)


@imports("TRANSPOSE")
def transpose(context: OperatorContext) -> None:
    x = context.input(0)
    permutation = tuple(context.axis(axis, x.type.rank) for axis in context.integers(1, "permutation"))
    context.require_same_quantization(x)
    context.finish(*context.emit(Transpose(permutation), x))


@imports("PAD", "PADV2")
def pad(context: OperatorContext) -> None:
    x = context.input(0)
    context.require_same_quantization(x)
    zero = context.zero_point(x)
    fill = float(zero)
    if context.optional(2) is not None:
        array = context.constant(2, "fill value")
        if array.size != 1 or context.input(2).type.dtype is not x.type.dtype:
            raise Unsupported(
                f"its fill value must be one {x.type.dtype.value}; it is {context.input(2).type}"
            )
        fill = float(array.reshape(-1)[0])
    context.finish(*context.emit(Pad(padding_pairs(context, x), fill), x))


def padding_pairs(context: OperatorContext, x: Value) -> tuple[Pair, ...]:
    """Input 1, [rank, 2]: elements before and after along each axis."""
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
    context.require_same_quantization(x)
    op = ResizeNearestNeighbor(
        image_size(context), bool(options.AlignCorners()), bool(options.HalfPixelCenters())
    )
    context.finish(*context.emit(op, x))


@imports("RESIZE_BILINEAR")
def resize_bilinear(context: OperatorContext) -> None:
    options = context.required_options("ResizeBilinearOptions")
    x = context.input(0)
    context.require_same_quantization(x)
    op = ResizeBilinear(image_size(context), bool(options.AlignCorners()), bool(options.HalfPixelCenters()))
    context.finish(*context.emit(op, x))


def image_size(context: OperatorContext) -> Pair:
    """Input 1: the new height and width."""
    size = context.integers(1, "size")
    if len(size) != 2:
        raise Unsupported(f"its size must be height and width; it is {list(size)}")
    return (size[0], size[1])


@imports("SHAPE")
def shape(context: OperatorContext) -> None:
    """Shapes are static, so that this is a constant."""
    options, dtype = context.options("ShapeOptions"), context.element().dtype
    if options is not None:
        context.require_type("out_type", int(options.OutType()))
    if dtype not in (DType.INT32, DType.INT64):
        raise Unsupported(f"its result must be int32 or int64; it is {dtype.value}")
    array = np.array(context.input(0).type.shape, dtype.numpy)
    context.finish(context.add_constant(array, context.name()))
