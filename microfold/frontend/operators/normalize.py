"""Importers of SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

import math

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.window import image
from microfold.ir.types import DType, ElementType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.pow import Pow
from microfold.ops.elementwise.unary import Unary
from microfold.ops.movement.reshape import Reshape
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.normalize.softmax import Softmax


@imports("SOFTMAX")
def softmax(context: OperatorContext) -> None:
    beta = float(context.required_options("SoftmaxOptions").Beta())
    context.finish(*context.emit(Softmax(beta, context.element()), context.input(0)))


@imports("LOG_SOFTMAX")
def log_softmax(context: OperatorContext) -> None:
    context.finish(*context.emit(LogSoftmax(context.element()), context.input(0)))


@imports("L2_NORMALIZATION")
def l2_normalization(context: OperatorContext) -> None:
    options = context.options("L2NormOptions")
    if options is not None and int(options.FusedActivationFunction()) != 0:
        raise Unsupported("a fused activation is not supported")
    x = context.input(0)
    op = L2Normalization(context.element(), legacy=context.raw_type(0) is DType.UINT8)
    context.finish(*context.emit(op, x))


@imports("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(context: OperatorContext) -> None:
    """Compute ``x * (bias + alpha * sum of the squares of neighbouring channels) ** -beta``.

    A convolution along the channels computes the sums.
    """
    options = context.required_options("LocalResponseNormalizationOptions")
    x, name, element = image(context), context.name(), ElementType(DType.FLOAT32)
    radius, shape = int(options.Radius()), image(context).type.shape
    bias, alpha, beta = (float(n) for n in (options.Bias(), options.Alpha(), options.Beta()))
    if x.type.dtype is not DType.FLOAT32:
        raise Unsupported(f"its input must be float32; it is {x.type}")
    if radius < 0 or not all(map(math.isfinite, (bias, alpha, beta))):
        raise Unsupported(
            "the radius must not be negative, and bias, alpha and beta must be finite; they are "
            f"{radius}, {bias}, {alpha} and {beta}"
        )
    radius = min(radius, shape[3] - 1)  # the most distant neighbours
    width = 2 * radius + 1
    filters = context.add_constant(np.full((1, 1, width, 1), alpha, np.float32), f"{name}_alpha")
    exponent = context.add_constant(np.array(-beta, np.float32), f"{name}_exponent")
    biases = context.add_constant(np.array([bias], np.float32), f"{name}_bias")
    (squares,) = context.emit(Unary("square", element), x, names=[f"{name}_squares"])
    lines = (1, math.prod(shape[:3]), shape[3], 1)
    (squares,) = context.emit(Reshape(lines), squares, names=[f"{name}_lines"])
    op = Conv2D((1, 1), (1, 1), ((0, 0), (radius, radius)), element)
    (sums,) = context.emit(op, squares, filters, biases, names=[f"{name}_sums"])
    (sums,) = context.emit(Reshape(shape), sums, names=[f"{name}_norms"])
    (factors,) = context.emit(Pow(element), sums, exponent, names=[f"{name}_factors"])
    context.finish(*context.emit(Mul(element), x, factors))
