"""Softmax and norms: SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, Unsupported, imports
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
    context.finish(*context.emit(L2Normalization(context.element()), context.input(0)))
