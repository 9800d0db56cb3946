"""Importers of CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV."""

from __future__ import annotations

from typing import Any

import tflite

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.hybrid import bias_of, is_hybrid, quantized, refuse_unsigned
from microfold.frontend.importers import imports
from microfold.frontend.operators.movement.rearrangement import spread
from microfold.frontend.window import (
    check_weights,
    image,
    padding_of,
    positive,
    strides_of,
    with_bias_type,
    without_zero_point,
)
from microfold.ir.node import Value
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D, scales_first
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.window import Padding, Pair, same_padding


@imports("CONV_2D")
def conv_2d(context: OperatorContext) -> None:
    options = context.required_options("Conv2DOptions")
    _convolution(context, options, Conv2D)


@imports("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(context: OperatorContext) -> None:
    """Derive the depth multiplier from the shapes, as LiteRT does.

    TFLM reads it from the file. That field must be equal or 0, which some files have.
    """
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
    x, weights = image(context), context.input(1)
    check_weights(x, weights)
    refuse_unsigned(context, x, 1)
    weights = without_zero_point(context, x, weights)
    if weights.type.rank != 4:
        raise Unsupported(f"its filter must have rank 4; it is {weights.type}")
    strides = strides_of(options)
    dilations = positive("dilations", int(options.DilationHFactor()), int(options.DilationWFactor()))
    size = (weights.type.shape[1], weights.type.shape[2])
    padding = padding_of(options, x, size, strides, dilations)
    if is_hybrid(x, weights):
        result = _hybrid(context, op, (strides, dilations, padding), x, weights)
    else:
        node = op(strides, dilations, padding, context.element())
        bias = context.optional(2)
        if op is Conv2D:
            bias = with_bias_type(context, bias, x, weights.type.shape[0], options)
        (result,) = context.emit(node, x, weights, bias)
    context.finish_activated(result, options.FusedActivationFunction())


def _hybrid(
    context: OperatorContext,
    op: type[Conv2D] | type[DepthwiseConv2D],
    shape: tuple[Pair, Pair, Padding],
    x: Value,
    weights: Value,
) -> Value:
    """Return the result of a convolution that quantises each image separately at run time.

    LiteRT ignores the file's field for asymmetric quantisation. The quantisation is symmetric only for a
    CONV_2D without groups whose filters all have the same scale.
    """
    if op is DepthwiseConv2D:
        values, steps = quantized(context, x, asymmetric=True)
        node, channels = HybridDepthwiseConv2D(*shape), weights.type.shape[3]
    else:
        asymmetric = weights.type.quant is not None and scales_first(x.type, weights.type)
        values, steps = quantized(context, x, asymmetric=asymmetric)
        node, channels = HybridConv2D(*shape), weights.type.shape[0]
    (result,) = context.emit(node, values, weights, bias_of(context, 2, channels), steps)
    return result


@imports("TRANSPOSE_CONV")
def transpose_conv(context: OperatorContext) -> None:
    """Input 0 is the shape of the output, 1 the filter, 2 the image, 3 the bias."""
    options = context.required_options("TransposeConvOptions")
    shape, weights, x = context.result_shape(0, "output shape"), context.input(1), context.input(2)
    check_weights(x, weights)
    refuse_unsigned(context, x, 1)
    weights = without_zero_point(context, x, weights)
    if len(shape) != 4 or weights.type.rank != 4 or x.type.rank != 4:
        raise Unsupported(f"output {list(shape)}, filter {weights.type} and input {x.type} must have rank 4")
    strides = strides_of(options)
    offset = (0, 0)
    if options.Padding() != tflite.Padding.VALID:
        # Padding before the image in the forward convolution of the output.
        vertical, horizontal = (
            same_padding(shape[1 + i], weights.type.shape[1 + i], strides[i])[0] for i in range(2)
        )
        offset = (vertical, horizontal)
    if is_hybrid(x, weights):
        result = _hybrid_transposed(context, (strides, offset, (shape[1], shape[2])), x, weights)
        context.finish_activated(result, int(options.FusedActivationFunction()))
        return
    op = TransposeConv2D(strides, offset, (shape[1], shape[2]), context.element())
    bias = with_bias_type(context, context.optional(3), x, weights.type.shape[0], options)
    (result,) = context.emit(op, x, weights, bias)
    if result.type.shape != shape:
        raise Unsupported(f"its result must match the output shape, {list(shape)}; it is {result.type}")
    context.finish_activated(result, int(options.FusedActivationFunction()))


def _hybrid_transposed(
    context: OperatorContext, shape: tuple[Pair, Pair, Pair], x: Value, weights: Value
) -> Value:
    """Return the result as a convolution with mirrored filters, over an image with zeros between its pixels.

    Args:
        shape: strides, rows and columns cropped at the start, and the extents of the result.
    """
    strides, offset, size = shape
    array = context.constant(1, "filter")[:, ::-1, ::-1]
    mirrored = context.add_constant(array.copy(), f"{weights.name}_mirrored", weights.type.element)
    values, steps = quantized(context, x, asymmetric=True)
    values = spread(context, values, (1, *strides, 1), 0.0)
    vertical, horizontal = (
        (kernel - 1 - before, extent + before - given)
        for kernel, before, extent, given in zip(
            weights.type.shape[1:3], offset, size, values.type.shape[1:3], strict=True
        )
    )
    node = HybridConv2D((1, 1), (1, 1), (vertical, horizontal))
    bias = bias_of(context, 3, weights.type.shape[0])
    return context.emit(node, values, mirrored, bias, steps)[0]
