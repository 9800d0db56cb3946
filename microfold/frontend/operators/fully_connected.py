"""FULLY_CONNECTED."""

from __future__ import annotations

import tflite

from microfold.frontend.context import OperatorContext, Unsupported, imports
from microfold.frontend.window import check_weights
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.reshape import Reshape


@imports("FULLY_CONNECTED")
def fully_connected(context: OperatorContext) -> None:
    options = context.required_options("FullyConnectedOptions")
    x, weights = context.input(0), context.input(1)
    check_weights(x, weights)
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
