"""Importers of UNIDIRECTIONAL_SEQUENCE_LSTM, LSTM and BIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tflite
from msgspec import Struct

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.hybrid import is_hybrid, real_values
from microfold.frontend.importers import imports
from microfold.frontend.operators.recurrent.directions import finish_directions, reversed_in_time
from microfold.frontend.operators.recurrent.gates import is_present, stacked, stacked_vectors
from microfold.frontend.raw import OperatorOptions
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType, Quant
from microfold.ops.movement.reshape import Reshape
from microfold.ops.recurrent.hybrid_lstm import HybridLstm
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.lstm_8x8_16 import Lstm8x8To16
from microfold.ops.recurrent.lstm_integer import GATE_SCALE


class Places(Struct, frozen=True):
    """Indices of a cell's operands among the inputs of an operator.

    Attributes:
        weights: index of the first of four input weights, for the gates i, f, g and o. Four recurrent
            weights, three peephole weights (i, f, o), four biases, the projection and its bias follow.
        hidden: index of the hidden state; the cell state follows.
        norm: index of the first of four coefficients of layer normalisation; None if it has none.
    """

    weights: int
    hidden: int
    norm: int | None = None

    @property
    def input_weights(self) -> Sequence[int]:
        return range(self.weights, self.weights + 4)

    @property
    def recurrent_weights(self) -> Sequence[int]:
        return range(self.weights + 4, self.weights + 8)

    @property
    def peephole(self) -> Sequence[int]:
        return range(self.weights + 8, self.weights + 11)

    @property
    def biases(self) -> Sequence[int]:
        return range(self.weights + 11, self.weights + 15)

    @property
    def projection(self) -> tuple[int, int]:
        return (self.weights + 15, self.weights + 16)

    @property
    def norms(self) -> Sequence[int]:
        return range(self.norm, self.norm + 4) if self.norm is not None else ()


ONE = Places(weights=1, hidden=18, norm=20)
FORWARD = Places(weights=1, hidden=35)
BACKWARD = Places(weights=18, hidden=37)
AUXILIARY = range(39, 48)  # second input of a bidirectional layer, and its weights
COUNTS = (20, 24)  # inputs of a cell without and with layer normalisation
VECTOR = 16  # elements of a vector in LiteRT's peephole product, which rounds ties up
UNITS = 4  # index of the intermediate tensor of the units' results, after those of the gates

Cell = Lstm | HybridLstm | Lstm8x8To16


@imports("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_sequence_lstm(context: OperatorContext) -> None:
    options = context.required_options("UnidirectionalSequenceLSTMOptions")
    _check_count(context, COUNTS)
    op = _operator(context, options, bool(options.TimeMajor()), ONE)
    context.finish(_run(context, op, context.input(0), ONE, context.name()))


@imports("LSTM")
def lstm(context: OperatorContext) -> None:
    """Import a single step as a sequence of length 1."""
    options = context.required_options("LSTMOptions")
    if int(options.KernelType()) != tflite.LSTMKernelType.FULL:
        raise Unsupported("only the kernel type FULL is supported; it is BASIC")
    _check_count(context, COUNTS)
    x = context.input(0)
    if x.type.rank != 2:
        raise Unsupported(f"its input must have two axes; it is {x.type}")
    op = _operator(context, options, True, ONE, single=True)
    (step,) = context.emit(Reshape((1, *x.type.shape)), x, names=[f"{x.name}_step"])
    result = _run(context, op, step, ONE, f"{context.name()}_step")
    context.finish(*context.emit(Reshape(result.type.shape[1:]), result))


@imports("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_sequence_lstm(context: OperatorContext) -> None:
    """Import one cell on the sequence, and another one on the reversed sequence."""
    options = context.required_options("BidirectionalSequenceLSTMOptions")
    _check_count(context, (48,))
    if any(is_present(context, index) for index in AUXILIARY):
        raise Unsupported("an auxiliary input is not supported", "concatenate it with the input")
    x = context.input(0)
    if x.type.dtype is not DType.FLOAT32:
        raise Unsupported(f"its input must be float32; it is {x.type}, which no reference computes")
    time_major = bool(options.TimeMajor())
    forward = _operator(context, options, time_major, FORWARD)
    backward = _operator(context, options, time_major, BACKWARD)
    first = _run(context, forward, x, FORWARD, f"{context.name()}_forward")
    turned = reversed_in_time(context, x, time_major)
    second = _run(context, backward, turned, BACKWARD, f"{context.name()}_backward")
    finish_directions(context, first, second, time_major, bool(options.MergeOutputs()))


def _check_count(context: OperatorContext, counts: Sequence[int]) -> None:
    if context.input_count not in counts:
        wanted = " or ".join(str(count) for count in counts)
        raise Unsupported(f"it must have {wanted} inputs; it has {context.input_count}")


def _operator(
    context: OperatorContext,
    options: OperatorOptions,
    time_major: bool,
    places: Places,
    single: bool = False,
) -> Cell:
    """Return the operator for the options, if a reference defines the results of the cell.

    Args:
        single: whether the cell computes a single step, for which TFLM has no operator.
    """
    activation = int(options.FusedActivationFunction())
    if activation != tflite.ActivationFunctionType.TANH:
        raise Unsupported(
            f"the activation of its cell must be TANH; it is {activation}, for which the references differ"
        )
    x, weights = context.input(0), context.input(places.input_weights[1])
    parts = {
        "coupled input and forget gates": not is_present(context, places.input_weights[0]),
        "a peephole": any(is_present(context, index) for index in places.peephole),
        "a projection": is_present(context, places.projection[0]),
        "layer normalisation": any(is_present(context, index) for index in places.norms),
    }
    found = [name for name, there in parts.items() if there]
    clips = float(options.CellClip()), float(options.ProjClip())
    if x.type.dtype is DType.INT8 and (found or single):
        scales = [
            context.intermediate_scale(gate) if "layer normalisation" in found else GATE_SCALE
            for gate in range(1 if parts["coupled input and forget gates"] else 0, 4)
        ]
        gates = ElementType(DType.INT16, Quant(tuple(scales), (0,) * len(scales), 0))
        outputs = context.input(places.hidden).type.shape[-1]
        rounded_up = outputs // VECTOR * VECTOR if "a peephole" in found else 0
        units = context.intermediate(UNITS)
        return Lstm8x8To16(time_major, *clips, gates, units, rounded_up, context.element())
    if x.type.dtype is not DType.FLOAT32 and (found or single):
        raise Unsupported(
            f"a cell of {x.type.dtype.value} {'with ' + ' and '.join(found) if found else 'of one step'} is "
            "not supported: TFLM has no such cell, and LiteRT reads its numbers as int8",
            "quantise the model to int8, or export the cell in float32",
        )
    if is_hybrid(x, weights):
        return HybridLstm(time_major, *clips, bool(options.AsymmetricQuantizeInputs()))
    return Lstm(time_major, *clips, context.element())


def _run(context: OperatorContext, op: Cell, x: Value, places: Places, name: str) -> Value:
    first = 0 if is_present(context, places.input_weights[0]) else 1
    for what, gates in (("recurrent weights", places.recurrent_weights), ("bias", places.biases)):
        if is_present(context, gates[0]) is bool(first):
            raise Unsupported(
                "the input gate must have input weights, recurrent weights and a bias, or none of them; "
                f"its {what} {'are present' if first else 'are missing'}"
            )
    hidden, cell = context.input(places.hidden), context.input(places.hidden + 1)
    looking, norms = places.peephole[first:], places.norms[first:]
    if isinstance(op, Lstm8x8To16):
        peephole = _integer_peephole(context, looking, op.time_major, f"{name}_peephole")
        norm = _integer_norm(context, norms, f"{name}_norm")
    else:
        peephole = _optional(context, looking, f"{name}_peephole")
        norm = _optional(context, norms, f"{name}_norm")
    result, next_hidden, next_cell = context.emit(
        op,
        x,
        stacked(context, places.input_weights[first:], f"{name}_input_weights"),
        stacked(context, places.recurrent_weights[first:], f"{name}_recurrent_weights"),
        stacked(context, places.biases[first:], f"{name}_bias"),
        hidden,
        cell,
        peephole,
        *(context.optional(place) for place in places.projection),
        norm,
        names=[name, f"{hidden.name}_next", f"{cell.name}_next"],
    )
    context.update_in_place(places.hidden, next_hidden)
    context.update_in_place(places.hidden + 1, next_cell)
    return result


def _are_there(context: OperatorContext, indices: Sequence[int]) -> bool:
    """Return whether the cell has these inputs, which must all be present or all be absent."""
    there = [is_present(context, index) for index in indices]
    if any(there) and not all(there):
        raise Unsupported(f"inputs {list(indices)} must all be present, or none of them; {there} are")
    return any(there)


def _optional(context: OperatorContext, indices: Sequence[int], name: str) -> Value | None:
    """Return the concatenated vectors of a cell with float32 vectors; None if it has none."""
    if not _are_there(context, indices):
        return None
    parts = [context.input(index) for index in indices]
    if any(part.type.dtype is not DType.INT8 or part.type.quant is None for part in parts):
        return stacked(context, indices, name)
    # Hybrid cells multiply by real vectors, so integers are converted at compile time.
    values = [
        real_values(context.constant(i, name), part.type) for i, part in zip(indices, parts, strict=True)
    ]
    return context.add_constant(np.concatenate(values), name)


def _integer_norm(context: OperatorContext, indices: Sequence[int], name: str) -> Value | None:
    if not _are_there(context, indices):
        return None
    array, quant = stacked_vectors(context, indices, name)
    return context.add_constant(array, name, ElementType(DType(array.dtype.name), quant))


def _integer_peephole(
    context: OperatorContext, indices: Sequence[int], time_major: bool, name: str
) -> Value | None:
    """Return the peephole weights of `Lstm8x8To16`, per sequence if they differ; None if it has none.

    LiteRT's loop over a batch of cells counts outputs instead of units (`CalculateLstmGateInteger8x8_16` in
    tensorflow/lite/kernels/lstm_eval.cc). With a projection to fewer outputs, it ends before the last units,
    and within a batch it multiplies weights with the wrong units.

    Raises:
        Unsupported: with more outputs than units, LiteRT writes beyond its gates.
    """
    if not _are_there(context, indices):
        return None
    array, quant = stacked_vectors(context, indices, name)
    batch, outputs = context.input(ONE.hidden).type.shape
    units = array.shape[1]
    if outputs > units:
        raise Unsupported(
            f"a peephole needs at least as many units as outputs; it has {units} and {outputs}, for which "
            "LiteRT writes out of bounds"
        )
    count = batch if time_major and outputs < units else 1
    if count > 1 and outputs >= VECTOR:
        raise Unsupported(
            f"a peephole and a projection of {units} units to {outputs} outputs, of a time-major batch of "
            f"{batch}, are not supported: LiteRT applies weights to the wrong units, with another rounding",
            "export the model batch-major, or for a batch of 1",
        )
    met = np.zeros((len(array), count * units), array.dtype)
    met[:, : count * outputs] = np.tile(array[:, :outputs], count)
    by_sequence = np.ascontiguousarray(met.reshape(len(array), count, units).swapaxes(0, 1))
    along_gates = Quant(quant.scales, quant.zero_points, 1)
    return context.add_constant(by_sequence, name, ElementType(DType(array.dtype.name), along_gates))
