"""CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED and pooling."""

from __future__ import annotations

from typing import Any

import tflite

from microfold.frontend.context import OperatorContext, Unsupported, imports
from microfold.ir.graph import Value
from microfold.ir.types import DType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.reshape import Reshape
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.window import Padding, Pair, Window, same_padding


def _check_weights(x: Value, weights: Value) -> None:
    """Refuse activations and weights whose types do not go together, with a hint."""
    given = f"activations are {x.type.dtype.value}, weights {weights.type.dtype.value}"
    if x.type.dtype is DType.FLOAT32 and weights.type.dtype in (DType.INT8, DType.UINT8):
        raise Unsupported(
            f"{given}: dynamic-range quantisation is not supported",
            "quantise activations too (with a representative dataset), or keep weights in float",
        )
    if DType.UINT8 in (x.type.dtype, weights.type.dtype):
        raise Unsupported(
            f"{given}: the legacy uint8 quantisation is not supported",
            "convert the model again, with int8 as the target type",
        )


def _padding(options: Any, x: Value, size: Pair, strides: Pair, dilations: Pair) -> Padding:
    if options.Padding() == tflite.Padding.VALID:
        return ((0, 0), (0, 0))
    extent = Window(size, strides, dilations, ((0, 0), (0, 0))).extent
    vertical = same_padding(x.type.shape[1], extent[0], strides[0])
    return (vertical, same_padding(x.type.shape[2], extent[1], strides[1]))


def _image(context: OperatorContext) -> Value:
    x = context.input(0)
    if x.type.rank != 4:
        raise Unsupported(f"its input must have rank 4 (NHWC); it is {x.type}")
    return x


def _positive(what: str, height: int, width: int) -> Pair:
    if min(height, width) < 1:
        raise Unsupported(f"{what} must be positive; they are {height} and {width}")
    return height, width


def _strides(options: Any) -> Pair:
    return _positive("strides", int(options.StrideH()), int(options.StrideW()))


@imports("CONV_2D")
def conv_2d(context: OperatorContext) -> None:
    options = context.required_options("Conv2DOptions")
    _convolution(context, options, Conv2D)


@imports("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(context: OperatorContext) -> None:
    """The shapes decide on the depth multiplier, as in LiteRT. TFLM takes the file's field, which must agree
    where it says anything: it is 0 at times."""
    options = context.required_options("DepthwiseConv2DOptions")
    multiplier = int(options.DepthMultiplier())
    shapes = (context.input(0).type, context.input(1).type)
    channels, filters = (type.shape[-1] if type.rank else 0 for type in shapes)
    if multiplier not in (0, filters / channels if channels else 0):
        raise Unsupported(
            f"depth_multiplier must be 0 or the filters per input channel; it is {multiplier}, for an input "
            f"{shapes[0]} and a filter {shapes[1]}"
        )
    _convolution(context, options, DepthwiseConv2D)


def _convolution(context: OperatorContext, options: Any, op: type[Conv2D] | type[DepthwiseConv2D]) -> None:
    x, weights = _image(context), context.input(1)
    _check_weights(x, weights)
    if weights.type.rank != 4:
        raise Unsupported(f"its filter must have rank 4; it is {weights.type}")
    strides = _strides(options)
    dilations = _positive("dilations", int(options.DilationHFactor()), int(options.DilationWFactor()))
    size = (weights.type.shape[1], weights.type.shape[2])
    padding = _padding(options, x, size, strides, dilations)
    (result,) = context.emit(
        op(strides, dilations, padding, context.element()), x, weights, context.optional(2)
    )
    context.finish_activated(result, options.FusedActivationFunction())


@imports("TRANSPOSE_CONV")
def transpose_conv(context: OperatorContext) -> None:
    """Input 0 is the shape of the output, 1 the filter, 2 the image, 3 the bias."""
    options = context.required_options("TransposeConvOptions")
    shape, weights, x = context.shape(0, "output shape"), context.input(1), context.input(2)
    _check_weights(x, weights)
    if len(shape) != 4 or weights.type.rank != 4 or x.type.rank != 4:
        raise Unsupported(f"output {list(shape)}, filter {weights.type} and input {x.type} must have rank 4")
    strides = _strides(options)
    offset = (0, 0)
    if options.Padding() != tflite.Padding.VALID:
        # What the forward convolution of the output would be padded by before.
        vertical, horizontal = (
            same_padding(shape[1 + i], weights.type.shape[1 + i], strides[i])[0] for i in range(2)
        )
        offset = (vertical, horizontal)
    op = TransposeConv2D(strides, offset, (shape[1], shape[2]), context.element())
    (result,) = context.emit(op, x, weights, context.optional(3))
    if result.type.shape != shape:
        raise Unsupported(f"its result is {result.type}; the output shape says {list(shape)}")
    context.finish_activated(result, int(options.FusedActivationFunction()))


@imports("BATCH_MATMUL")
def batch_matmul(context: OperatorContext) -> None:
    options = context.required_options("BatchMatMulOptions")
    op = BatchMatmul(bool(options.AdjX()), bool(options.AdjY()), context.element())
    context.finish(*context.emit(op, context.input(0), context.input(1)))


@imports("FULLY_CONNECTED")
def fully_connected(context: OperatorContext) -> None:
    options = context.required_options("FullyConnectedOptions")
    x, weights = context.input(0), context.input(1)
    _check_weights(x, weights)
    if options.WeightsFormat() != tflite.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise Unsupported("only the default weights format is supported")
    if weights.type.rank != 2:
        raise Unsupported(f"its weights must have rank 2; they are {weights.type}")
    units, depth = weights.type.shape
    if depth == 0 or x.type.size % depth:
        raise Unsupported(f"the input {x.type} does not divide into rows of {depth}")
    batch = x.type.size // depth
    if x.type.shape != (batch, depth):
        (x,) = context.emit(Reshape((batch, depth)), x, names=[f"{x.name}_rows"])
    (result,) = context.emit(FullyConnected(context.element()), x, weights, context.optional(2))
    if options.KeepNumDims():
        shape = (*context.input(0).type.shape[:-1], units)
        if shape != result.type.shape:
            (result,) = context.emit(Reshape(shape), result)
    context.finish_activated(result, options.FusedActivationFunction())


@imports("AVERAGE_POOL_2D")
def average_pool_2d(context: OperatorContext) -> None:
    _pool(context, AveragePool2D)


@imports("MAX_POOL_2D")
def max_pool_2d(context: OperatorContext) -> None:
    _pool(context, MaxPool2D)


def _pool(context: OperatorContext, op: type[AveragePool2D] | type[MaxPool2D]) -> None:
    options = context.required_options("Pool2DOptions")
    x = _image(context)
    size = _positive("filter sizes", int(options.FilterHeight()), int(options.FilterWidth()))
    strides = _strides(options)
    padding = _padding(options, x, size, strides, (1, 1))
    context.require_same_quantization(x)
    (result,) = context.emit(op(size, strides, padding), x)
    context.finish_activated(result, options.FusedActivationFunction())
