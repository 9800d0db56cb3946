"""Importers of float32 CONV_3D and CONV_3D_TRANSPOSE, as 2-D convolutions over stacked depth slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.window import positive, strides_of
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, ElementType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.window import Pair, same_padding


@imports("CONV_3D")
def conv_3d(context: OperatorContext) -> None:
    """For each output depth, concatenate the slices in its window along the channels."""
    options = context.required_options("Conv3DOptions")
    x, filters = _volume(context, 0), _filters(context, 1)
    depth, *window = filters.shape[:3]
    strides = strides_of(options)
    step, _ = positive("strides", int(options.StrideD()), 1)
    dilation, _ = positive("dilations", int(options.DilationDFactor()), 1)
    dilations = positive("dilations", int(options.DilationHFactor()), int(options.DilationWFactor()))
    extents = [(n - 1) * d + 1 for n, d in zip((depth, *window), (dilation, *dilations), strict=True)]
    padding: list[Pair] = [
        same_padding(n, extent, stride) if options.Padding() != tflite.Padding.VALID else (0, 0)
        for n, extent, stride in zip(x.type.shape[1:4], extents, (step, *strides), strict=True)
    ]
    if filters.shape[3] != x.type.shape[4]:
        raise Unsupported(f"its filter must have the channels of {x.type}; it is {list(filters.shape)}")
    count = (x.type.shape[1] + sum(padding[0]) - extents[0]) // step + 1
    x = _padded(context, x, padding[0])
    image = _stacked(context, x, [k * dilation for k in range(depth)], step, count)
    op = Conv2D(strides, dilations, (padding[1], padding[2]), ElementType(DType.FLOAT32))
    # [depth, height, width, channels, filters] to [filters, height, width, depth * channels].
    weights = filters.transpose(4, 1, 2, 0, 3).reshape(filters.shape[4], *window, -1)
    _finish(context, op, image, weights, context.optional(2), count, options)


@imports("CONV_3D_TRANSPOSE")
def conv_3d_transpose(context: OperatorContext) -> None:
    """Along the depth, convolve with the reversed filter, over slices with zeros between them."""
    options = context.required_options("Conv3DOptions")
    shape, filters, x = context.result_shape(0, "output shape"), _filters(context, 1), _volume(context, 2)
    depth, *window = filters.shape[:3]
    if len(shape) != 5 or filters.shape[4] != x.type.shape[4]:
        raise Unsupported(f"shape {list(shape)}, filter {list(filters.shape)} and {x.type} do not match")
    if any(
        int(n) != 1 for n in (options.DilationDFactor(), options.DilationHFactor(), options.DilationWFactor())
    ):
        raise Unsupported("dilations must be 1")
    strides = strides_of(options)
    step, _ = positive("strides", int(options.StrideD()), 1)
    front, *offset = (
        same_padding(shape[1 + axis], filters.shape[axis], stride)[0]
        if options.Padding() != tflite.Padding.VALID
        else 0
        for axis, stride in enumerate((step, *strides))
    )
    x = _spread(context, x, step)
    before = depth - 1 - front
    x = _padded(context, x, (before, max(shape[1] + depth - 1 - before - x.type.shape[1], 0)))
    image = _stacked(context, x, list(range(depth)), 1, shape[1])
    op = TransposeConv2D(strides, (offset[0], offset[1]), (shape[2], shape[3]), ElementType(DType.FLOAT32))
    # [depth, height, width, filters, channels] to [filters, height, width, depth * channels].
    weights = filters[::-1].transpose(3, 1, 2, 0, 4).reshape(filters.shape[3], *window, -1)
    _finish(context, op, image, weights, context.optional(3), shape[1], options)


def _volume(context: OperatorContext, index: int) -> Value:
    x = context.input(index)
    if x.type.rank != 5 or x.type.dtype is not DType.FLOAT32:
        raise Unsupported(f"its input must be float32 [N,D,H,W,C]; it is {x.type}")
    return x


def _filters(context: OperatorContext, index: int) -> Array:
    array = context.constant(index, "filter")
    if array.ndim != 5 or array.dtype != np.float32:
        raise Unsupported(f"its filter must be float32 of 5 axes; it is {context.input(index).type}")
    return array


def _padded(context: OperatorContext, x: Value, pair: Pair) -> Value:
    if pair == (0, 0):
        return x
    padding = ((0, 0), pair, (0, 0), (0, 0), (0, 0))
    return context.emit(Pad(padding, 0.0), x, names=[f"{context.name()}_padded"])[0]


def _spread(context: OperatorContext, x: Value, step: int) -> Value:
    if step == 1:
        return x
    batch, depth, *rest = x.type.shape
    name = context.name()
    (x,) = context.emit(Reshape((batch, depth, 1, *rest)), x, names=[f"{name}_split"])
    pairs = tuple((0, step - 1 if axis == 2 else 0) for axis in range(6))
    (x,) = context.emit(Pad(pairs, 0.0), x, names=[f"{name}_zeros"])
    return context.emit(Reshape((batch, depth * step, *rest)), x, names=[f"{name}_spread"])[0]


def _stacked(context: OperatorContext, x: Value, starts: list[int], step: int, count: int) -> Value:
    """Return images [N * count, H, W, starts * C]: for each output depth, the slices in its window."""
    name = context.name()
    batch, _, height, width, channels = x.type.shape
    size, strides = (batch, count, height, width, channels), (1, step, 1, 1, 1)
    slices = [
        context.emit(StridedSlice((0, start, 0, 0, 0), size, strides), x, names=[f"{name}_slices{start}"])[0]
        for start in starts
    ]
    (stacked,) = context.emit(Concatenate(4), *slices, names=[f"{name}_stacked"])
    shape = (batch * count, height, width, channels * len(starts))
    return context.emit(Reshape(shape), stacked, names=[f"{name}_images"])[0]


def _finish(
    context: OperatorContext,
    op: Conv2D | TransposeConv2D,
    image: Value,
    weights: Array,
    bias: Value | None,
    depth: int,
    options: Any,
) -> None:
    """Convolve the images, and reshape the result to slices."""
    name = context.name()
    filters = context.add_constant(np.ascontiguousarray(weights), f"{name}_filters")
    (result,) = context.emit(op, image, filters, bias, names=[f"{name}_convolved"])
    count, *rest = result.type.shape
    (result,) = context.emit(Reshape((count // depth, depth, *rest)), result)
    context.finish_activated(result, int(options.FusedActivationFunction()))
