"""UNIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

import tflite

from microfold.frontend.context import OperatorContext, Unsupported, imports
from microfold.frontend.operators.recurrent.gates import stacked
from microfold.ir.node import Value
from microfold.ir.types import DType
from microfold.ops.recurrent.lstm import Lstm

# Places of a cell's operands among the inputs: one for each of the gates i, f, g and o.
INPUT_WEIGHTS = (1, 2, 3, 4)
RECURRENT_WEIGHTS = (5, 6, 7, 8)
PEEPHOLE = (9, 10, 11)  # of the gates i, f and o
BIASES = (12, 13, 14, 15)
PROJECTION, PROJECTION_BIAS = 16, 17
HIDDEN, CELL = 18, 19
NORM = (20, 21, 22, 23)
COUNTS = (20, 24)  # inputs of operators without and with layer normalisation


@imports("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_sequence_lstm(context: OperatorContext) -> None:
    """The gates are stacked. The file's intermediate tensors mean nothing in these cells."""
    options = context.required_options("UnidirectionalSequenceLSTMOptions")
    if context.input_count not in COUNTS:
        raise Unsupported(f"it must have 20 or 24 inputs; it has {context.input_count}")
    x = context.input(0)
    _check_supported(context, x, int(options.FusedActivationFunction()))
    coupled = not _present(context, INPUT_WEIGHTS[0])
    first = 1 if coupled else 0
    for places, what in ((RECURRENT_WEIGHTS, "recurrent weights"), (BIASES, "bias")):
        if _present(context, places[0]) is coupled:
            raise Unsupported(
                "the input gate must have input weights, recurrent weights and a bias, or none of them; "
                f"its {what} {'are there' if coupled else 'are missing'}"
            )
    hidden, cell = context.input(HIDDEN), context.input(CELL)
    op = Lstm(
        bool(options.TimeMajor()), float(options.CellClip()), float(options.ProjClip()), context.element()
    )
    optional = [
        _optional(context, PEEPHOLE[first:], "peephole_weights"),
        context.optional(PROJECTION),
        context.optional(PROJECTION_BIAS),
        _optional(context, NORM[first:], "norm"),
    ]
    result, next_hidden, next_cell = context.emit(
        op,
        x,
        stacked(context, INPUT_WEIGHTS[first:], "input_weights"),
        stacked(context, RECURRENT_WEIGHTS[first:], "recurrent_weights"),
        stacked(context, BIASES[first:], "bias"),
        hidden,
        cell,
        *optional,
        names=[context.name(), f"{hidden.name}_next", f"{cell.name}_next"],
    )
    context.update_in_place(HIDDEN, next_hidden)
    context.update_in_place(CELL, next_cell)
    context.finish(result)


def _present(context: OperatorContext, index: int) -> bool:
    return index < context.input_count and context.raw.inputs[index] >= 0


def _optional(context: OperatorContext, indices: tuple[int, ...], name: str) -> Value | None:
    """A part that the cell has for all of its gates or for none."""
    present = [_present(context, index) for index in indices]
    if any(present) and not all(present):
        raise Unsupported(
            f"its {name} must be there for all gates or for none; inputs {list(indices)} differ"
        )
    return stacked(context, indices, name) if all(present) else None


def _check_supported(context: OperatorContext, x: Value, activation: int) -> None:
    """Refuse what has no reference that could be followed.

    Raises:
        Unsupported: it is that.
    """
    if activation != tflite.ActivationFunctionType.TANH:
        raise Unsupported(
            f"the activation of its cell must be TANH; it is {activation}, where the references differ"
        )
    weights = context.input(INPUT_WEIGHTS[1]).type.dtype
    if x.type.dtype is DType.FLOAT32 and weights is DType.INT8:
        raise Unsupported(
            "float32 activations with int8 weights (dynamic range) are not supported",
            "quantise the activations, too, or export with float32 or float16 weights",
        )
    parts = {
        "coupled input and forget gates": not _present(context, INPUT_WEIGHTS[0]),
        "a peephole": any(_present(context, index) for index in PEEPHOLE),
        "a projection": _present(context, PROJECTION),
        "layer normalisation": any(_present(context, index) for index in NORM),
    }
    found = [name for name, there in parts.items() if there]
    if x.type.dtype is not DType.FLOAT32 and found:
        raise Unsupported(
            f"a quantised cell with {' and '.join(found)} is not supported: no reference is known to the bit",
            "export a cell without, or in float32",
        )
