"""Pooling: AVERAGE_POOL_2D, MAX_POOL_2D."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, imports
from microfold.frontend.window import image, padding_of, positive, strides_of
from microfold.ops.pool2d import AveragePool2D, MaxPool2D


@imports("AVERAGE_POOL_2D")
def average_pool_2d(context: OperatorContext) -> None:
    _pool(context, AveragePool2D)


@imports("MAX_POOL_2D")
def max_pool_2d(context: OperatorContext) -> None:
    _pool(context, MaxPool2D)


def _pool(context: OperatorContext, op: type[AveragePool2D] | type[MaxPool2D]) -> None:
    options = context.required_options("Pool2DOptions")
    x = image(context)
    size = positive("filter sizes", int(options.FilterHeight()), int(options.FilterWidth()))
    strides = strides_of(options)
    padding = padding_of(options, x, size, strides, (1, 1))
    context.require_same_quantization(x)
    (result,) = context.emit(op(size, strides, padding), x)
    context.finish_activated(result, options.FusedActivationFunction())
