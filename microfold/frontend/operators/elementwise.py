"""Operators on elements: ADD, SOFTMAX …"""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, imports
from microfold.ops.add import Add
from microfold.ops.softmax import Softmax


@imports("ADD")
def add(context: OperatorContext) -> None:
    options = context.options("AddOptions")
    (result,) = context.emit(Add(context.element()), context.input(0), context.input(1))
    context.finish_activated(result, options.FusedActivationFunction() if options is not None else 0)


@imports("SOFTMAX")
def softmax(context: OperatorContext) -> None:
    options = context.required_options("SoftmaxOptions")
    context.finish(*context.emit(Softmax(float(options.Beta()), context.element()), context.input(0)))
