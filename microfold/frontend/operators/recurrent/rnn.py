"""Importers of UNIDIRECTIONAL_SEQUENCE_RNN, RNN and BIDIRECTIONAL_SEQUENCE_RNN."""

from __future__ import annotations

import tflite

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.hybrid import is_hybrid
from microfold.frontend.importers import imports
from microfold.frontend.operators.recurrent.directions import finish_directions, reversed_in_time
from microfold.frontend.operators.recurrent.gates import is_present
from microfold.frontend.raw import OperatorOptions
from microfold.frontend.schema import activation_name
from microfold.ir.node import Value
from microfold.ir.types import DType
from microfold.ops.movement.reshape import Reshape
from microfold.ops.recurrent.hybrid_sequence_rnn import HybridSequenceRnn
from microfold.ops.recurrent.sequence_rnn import SequenceRnn

ACTIVATIONS = {
    tflite.ActivationFunctionType.NONE: "none",
    tflite.ActivationFunctionType.RELU: "relu",
    tflite.ActivationFunctionType.RELU_N1_TO_1: "relu_n1_to_1",
    tflite.ActivationFunctionType.RELU6: "relu6",
    tflite.ActivationFunctionType.TANH: "tanh",
}
AUXILIARY = (9, 10, 11)  # second input of a bidirectional layer, and its weights


@imports("UNIDIRECTIONAL_SEQUENCE_RNN")
def unidirectional_sequence_rnn(context: OperatorContext) -> None:
    options = context.required_options("SequenceRNNOptions")
    op = _operator(context, options, bool(options.TimeMajor()))
    context.finish(_run(context, op, context.input(0), (1, 2, 3, 4), context.name()))


@imports("RNN")
def rnn(context: OperatorContext) -> None:
    """Import a single step as a sequence of length 1."""
    options = context.required_options("RNNOptions")
    op = _operator(context, options, True)
    x = context.input(0)
    if x.type.rank != 2:
        raise Unsupported(f"its input must have two axes; it is {x.type}")
    (step,) = context.emit(Reshape((1, *x.type.shape)), x, names=[f"{x.name}_step"])
    result = _run(context, op, step, (1, 2, 3, 4), f"{context.name()}_step")
    context.finish(*context.emit(Reshape(result.type.shape[1:]), result))


@imports("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_sequence_rnn(context: OperatorContext) -> None:
    """Import one layer on the sequence, and another one on the reversed sequence."""
    options = context.required_options("BidirectionalSequenceRNNOptions")
    op = _operator(context, options, bool(options.TimeMajor()))
    if any(is_present(context, index) for index in AUXILIARY):
        raise Unsupported("an auxiliary input is not supported", "concatenate it with the input")
    x = context.input(0)
    forward = _run(context, op, x, (1, 2, 3, 4), f"{context.name()}_forward")
    turned = reversed_in_time(context, x, op.time_major)
    backward = _run(context, op, turned, (5, 6, 7, 8), f"{context.name()}_backward")
    finish_directions(context, forward, backward, op.time_major, bool(options.MergeOutputs()))


def _run(
    context: OperatorContext,
    op: SequenceRnn | HybridSequenceRnn,
    x: Value,
    places: tuple[int, int, int, int],
    name: str,
) -> Value:
    """Emit the layer. `places` are the indices of weights, recurrent weights, bias and state."""
    weights, recurrent, bias, hidden = (context.input(place) for place in places)
    if x.type.dtype is not DType.FLOAT32:
        raise Unsupported(f"its input must be float32; it is {x.type}, which no reference computes")
    result, state = context.emit(op, x, weights, recurrent, bias, hidden, names=[name, f"{hidden.name}_next"])
    context.update_in_place(places[3], state)
    return result


def _operator(
    context: OperatorContext, options: OperatorOptions, time_major: bool
) -> SequenceRnn | HybridSequenceRnn:
    code = int(options.FusedActivationFunction())
    if code not in ACTIVATIONS:
        raise Unsupported(f"its activation must be NONE, TANH or a ReLU; it is {activation_name(code)}")
    if is_hybrid(context.input(0), context.input(1)):
        return HybridSequenceRnn(time_major, ACTIVATIONS[code], bool(options.AsymmetricQuantizeInputs()))
    return SequenceRnn(time_major, ACTIVATIONS[code])
