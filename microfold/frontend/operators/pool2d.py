"""Importers of AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.window import image, padding_of, positive, strides_of
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType
from microfold.ops.elementwise.unary import Unary
from microfold.ops.pool2d import AveragePool2D, MaxPool2D


@imports("AVERAGE_POOL_2D")
def average_pool_2d(context: OperatorContext) -> None:
    _pool(context, AveragePool2D)


@imports("MAX_POOL_2D")
def max_pool_2d(context: OperatorContext) -> None:
    _pool(context, MaxPool2D)


@imports("L2_POOL_2D")
def l2_pool_2d(context: OperatorContext) -> None:
    """Compute the square root of the mean of the squares."""
    x, name, element = image(context), context.name(), ElementType(DType.FLOAT32)
    if x.type.dtype is not DType.FLOAT32:
        raise Unsupported(f"its input must be float32; it is {x.type}")
    (squares,) = context.emit(Unary("square", element), x, names=[f"{name}_squares"])
    (means,) = context.emit(_pool_of(context, AveragePool2D, squares), squares, names=[f"{name}_means"])
    (result,) = context.emit(Unary("sqrt", element), means)
    context.finish_activated(result, context.required_options("Pool2DOptions").FusedActivationFunction())


def _pool(context: OperatorContext, op: type[AveragePool2D] | type[MaxPool2D]) -> None:
    x = image(context)
    context.require_same_quantization(x)
    (result,) = context.emit(_pool_of(context, op, x), x)
    context.finish_activated(result, context.required_options("Pool2DOptions").FusedActivationFunction())


def _pool_of(
    context: OperatorContext, op: type[AveragePool2D] | type[MaxPool2D], x: Value
) -> AveragePool2D | MaxPool2D:
    options = context.required_options("Pool2DOptions")
    size = positive("filter sizes", int(options.FilterHeight()), int(options.FilterWidth()))
    strides = strides_of(options)
    padding = padding_of(options, x, size, strides, (1, 1))
    return op(size, strides, padding)
