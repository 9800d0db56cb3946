"""Recurrent operators with random weights, as operators of small `.tflite` files."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from msgspec import Struct

from tests.tflite_writer import Array, Writer

TANH = tflite.ActivationFunctionType.TANH
GATE = 2.0**-12


class Sequence(Struct, frozen=True):
    """Extents of a sequence and of what reads it."""

    batch: int = 1
    steps: int = 3
    inputs: int = 5
    units: int = 4
    time_major: bool = False

    def shape(self, width: int) -> tuple[int, int, int]:
        first, second = (self.steps, self.batch) if self.time_major else (self.batch, self.steps)
        return (first, second, width)


def integer_lstm(
    w: Writer,
    rng: np.random.Generator,
    size: Sequence,
    dtype: str = "i1",
    *,
    clip: float = 0.0,
    cell_scale: float = 2.0**-11,
    spread: float = 1.0,
    extreme: bool = False,
) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of ``i1`` or ``i2``, an input and an output of the file.

    Args:
        spread: of the products of the gates; at 1 some of them saturate the activations.
        extreme: weights are -128 or 127, of which 16 bits do not hold two.
    """
    wide = dtype == "i2"
    levels = 32768 if wide else 128
    zero, hidden_zero = (0, 0) if wide else (int(rng.integers(-128, 128)), int(rng.integers(-6, 6)))
    scale, hidden_scale = (
        float(rng.uniform(0.5, 2)) / levels,
        1 / 32768 if wide else float(rng.uniform(0.007, 0.008)),
    )
    x = w.input(size.shape(size.inputs), dtype, scale, zero)
    operands = [x, *[-1] * 23]
    for gate in range(4):
        for place, width, given in ((1, size.inputs, scale), (5, size.units, hidden_scale)):
            weights = (
                rng.choice([-128, 127], (size.units, width))
                if extreme
                else rng.integers(-127, 128, (size.units, width))
            )
            own = float(rng.uniform(0.5, 2.5)) * spread / (given * levels * 0.6 * 74 * np.sqrt(width))
            operands[place + gate] = w.tensor(weights.shape, "i1", own, data=weights)
            if place == 1:
                bias = (rng.uniform(-1.5, 1.5, size.units) * spread / (given * own)).astype(np.int64)
                kind = "i8" if wide else "i4"
                operands[12 + gate] = w.tensor(bias.shape, kind, given * own, data=bias)
    operands[18] = w.tensor((size.batch, size.units), dtype, hidden_scale, hidden_zero, variable=True)
    operands[19] = w.tensor((size.batch, size.units), "i2", cell_scale, variable=True)
    y = w.tensor(size.shape(size.units), dtype, hidden_scale, hidden_zero)
    _lstm(w, operands, y, size, clip, 0.0)


class Parts(Struct, frozen=True):
    """What a float32 cell has beside its four gates.

    Attributes:
        projection: its outputs; 0: none.
        clips: of the cell and of the projection; 0: none.
    """

    coupled: bool = False
    peephole: bool = False
    projection: int = 0
    norm: bool = False
    clips: tuple[float, float] = (0.0, 0.0)


PLAIN = Parts()


def float_lstm(w: Writer, rng: np.random.Generator, size: Sequence, parts: Parts = PLAIN) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of float32, an input and an output of the file."""
    operands = [w.input(size.shape(size.inputs), "f4"), *[-1] * 23]
    _float_cell(w, rng, size, parts, operands, 1, 18, 20)
    y = w.tensor(size.shape(parts.projection or size.units), "f4")
    _lstm(w, operands, y, size, *parts.clips)


class Quantization(Struct, frozen=True):
    """How numbers of a cell of int8 and 16-bit numbers are drawn.

    Attributes:
        cell: scale of the cell.
        spread: of the products of the gates; at 1 some of them saturate the activations.
        extreme: weights are -128 or 127.
    """

    cell: float = 2.0**-11
    spread: float = 1.0
    extreme: bool = False


QUANTIZATION = Quantization()


def lstm_8x8_16(
    w: Writer,
    rng: np.random.Generator,
    size: Sequence,
    parts: Parts,
    how: Quantization = QUANTIZATION,
    single: bool = False,
) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of int8 with intermediate tensors, an input and an output of the file.

    Args:
        single: it is an LSTM, of one step.
    """
    outputs = parts.projection or size.units
    zero, hidden_zero, shown_zero = (int(rng.integers(low, -low)) for low in (-128, -30, -30))
    scale, hidden_scale = float(rng.uniform(0.5, 2)) / 128, float(rng.uniform(0.007, 0.009))
    shown_scale = float(rng.uniform(0.006, 0.009))
    x = w.input((size.batch, size.inputs) if single else size.shape(size.inputs), "i1", scale, zero)
    operands = [x, *[-1] * 23]

    def weights(rows: int, width: int, given: float, spread: float) -> tuple[int, float]:
        choice = [-128, 127] if how.extreme else np.arange(-127, 128)
        own = float(rng.uniform(0.5, 2.5)) * spread / (given * 128 * 0.6 * 74 * np.sqrt(width))
        return w.tensor((rows, width), "i1", own, data=rng.choice(choice, (rows, width))), own

    def words(large: float) -> int:
        data = np.clip(rng.standard_normal(size.units) * 9000, -32768, 32767)
        return w.tensor(data.shape, "i2", large / 32768, data=data)

    def bias(count: int, unit: float, large: float) -> int:
        data = rng.uniform(-large, large, count) / unit
        return w.tensor((count,), "i4", unit, data=np.clip(data, -(2**30), 2**30))

    intermediates = []
    for gate in range(4):
        own = float(rng.uniform(0.5, 2)) * GATE if parts.norm else GATE
        intermediates.append(w.tensor((0,), "i2", own))
        if parts.coupled and gate == 0:
            continue
        operands[1 + gate], step = weights(size.units, size.inputs, scale, how.spread)
        operands[5 + gate], _ = weights(size.units, outputs, hidden_scale, how.spread)
        norm = float(rng.uniform(1, 3))
        unit = norm / 32768 / 1024 if parts.norm else scale * step
        operands[12 + gate] = bias(size.units, unit, 1.5 if parts.norm else how.spread)
        if parts.norm:
            operands[20 + gate] = words(norm)
        if parts.peephole and gate != 2:
            operands[9 + min(gate, 2)] = words(float(rng.uniform(0.3, 3)))
    intermediates.append(w.tensor((0,), "i1", shown_scale, shown_zero))
    if parts.projection:
        operands[16], step = weights(outputs, size.units, shown_scale, 0.6)
        if rng.integers(2):
            operands[17] = bias(outputs, shown_scale * step, 0.3)
    operands[18] = w.tensor((size.batch, outputs), "i1", hidden_scale, hidden_zero, variable=True)
    operands[19] = w.tensor((size.batch, size.units), "i2", how.cell, variable=True)
    y = w.tensor((size.batch, outputs) if single else size.shape(outputs), "i1", hidden_scale, hidden_zero)
    name = "LSTM" if single else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    options = "LSTMOptions" if single else "UnidirectionalSequenceLSTMOptions"
    fields: dict[str, Any] = {} if single else {"TimeMajor": size.time_major}
    fields |= {"FusedActivationFunction": TANH, "CellClip": parts.clips[0], "ProjClip": parts.clips[1]}
    w.operator(name, operands, y, options, intermediates=intermediates, **fields)


def single_lstm(w: Writer, rng: np.random.Generator, size: Sequence, parts: Parts = PLAIN) -> None:
    """LSTM of float32: one step."""
    operands = [w.input((size.batch, size.inputs), "f4"), *[-1] * 23]
    _float_cell(w, rng, size, parts, operands, 1, 18, 20)
    y = w.tensor((size.batch, parts.projection or size.units), "f4")
    w.operator("LSTM", operands, y, "LSTMOptions", FusedActivationFunction=TANH, CellClip=parts.clips[0])


def bidirectional_lstm(
    w: Writer, rng: np.random.Generator, size: Sequence, parts: Parts = PLAIN, *, merged: bool
) -> None:
    """BIDIRECTIONAL_SEQUENCE_LSTM of float32, an input and one or two outputs of the file."""
    operands = [w.input(size.shape(size.inputs), "f4"), *[-1] * 47]
    _float_cell(w, rng, size, parts, operands, 1, 35)
    _float_cell(w, rng, size, parts, operands, 18, 37)
    w.operator(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        operands,
        _directions(w, size, parts.projection or size.units, merged),
        "BidirectionalSequenceLSTMOptions",
        FusedActivationFunction=TANH,
        CellClip=parts.clips[0],
        ProjClip=parts.clips[1],
        MergeOutputs=merged,
        TimeMajor=size.time_major,
    )


def _directions(w: Writer, size: Sequence, width: int, merged: bool) -> list[int]:
    """Results of both directions."""
    return [w.tensor(size.shape(width * (1 + merged)), "f4") for _ in range(2 - merged)]


def _float_cell(
    w: Writer,
    rng: np.random.Generator,
    size: Sequence,
    parts: Parts,
    operands: list[int],
    first: int,
    hidden: int,
    norm: int = 0,
) -> None:
    """Puts the operands of a cell at their places: weights from `first` on, states from `hidden` on."""
    outputs = parts.projection or size.units

    def constant(*shape: int, large: float = 1.0) -> int:
        return w.tensor(shape, "f4", data=rng.standard_normal(shape) * large)

    for gate in range(1 if parts.coupled else 0, 4):
        operands[first + gate] = constant(size.units, size.inputs, large=1 / np.sqrt(size.inputs))
        operands[first + 4 + gate] = constant(size.units, outputs, large=1 / np.sqrt(outputs))
        operands[first + 11 + gate] = constant(size.units)
        if parts.norm:
            operands[norm + gate] = constant(size.units)
        if parts.peephole and gate != 2:
            operands[first + 8 + min(gate, 2)] = constant(size.units, large=0.5)
    if parts.projection:
        operands[first + 15] = constant(outputs, size.units, large=1 / np.sqrt(size.units))
        operands[first + 16] = constant(outputs)
    operands[hidden] = w.tensor((size.batch, outputs), "f4", variable=True)
    operands[hidden + 1] = w.tensor((size.batch, size.units), "f4", variable=True)


def _lstm(
    w: Writer, operands: list[int], y: int, size: Sequence, cell_clip: float, projection_clip: float
) -> None:
    w.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        operands,
        y,
        "UnidirectionalSequenceLSTMOptions",
        FusedActivationFunction=TANH,
        CellClip=cell_clip,
        ProjClip=projection_clip,
        TimeMajor=size.time_major,
    )


def float_rnn(w: Writer, rng: np.random.Generator, size: Sequence, activation: str = "TANH") -> None:
    """UNIDIRECTIONAL_SEQUENCE_RNN of float32, an input and an output of the file."""
    x = w.input(size.shape(size.inputs), "f4")
    y = w.tensor(size.shape(size.units), "f4")
    w.operator(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        [x, *_rnn(w, rng, size)],
        y,
        "SequenceRNNOptions",
        TimeMajor=size.time_major,
        FusedActivationFunction=getattr(tflite.ActivationFunctionType, activation),
    )


def single_rnn(w: Writer, rng: np.random.Generator, size: Sequence, activation: str = "TANH") -> None:
    """RNN of float32: one step."""
    x = w.input((size.batch, size.inputs), "f4")
    y = w.tensor((size.batch, size.units), "f4")
    code = getattr(tflite.ActivationFunctionType, activation)
    w.operator("RNN", [x, *_rnn(w, rng, size)], y, "RNNOptions", FusedActivationFunction=code)


def bidirectional_rnn(w: Writer, rng: np.random.Generator, size: Sequence, *, merged: bool) -> None:
    """BIDIRECTIONAL_SEQUENCE_RNN of float32, an input and one or two outputs of the file."""
    x = w.input(size.shape(size.inputs), "f4")
    w.operator(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        [x, *_rnn(w, rng, size), *_rnn(w, rng, size), -1, -1, -1],
        _directions(w, size, size.units, merged),
        "BidirectionalSequenceRNNOptions",
        TimeMajor=size.time_major,
        FusedActivationFunction=TANH,
        MergeOutputs=merged,
    )


def _rnn(w: Writer, rng: np.random.Generator, size: Sequence) -> list[int]:
    """Weights, recurrent weights, bias and state."""
    shapes = (size.units, size.inputs), (size.units, size.units), (size.units,)
    constants = [w.tensor(s, "f4", data=rng.standard_normal(s) * 0.7 / np.sqrt(s[-1])) for s in shapes]
    return [*constants, w.tensor((size.batch, size.units), "f4", variable=True)]


def inputs_of(rng: np.random.Generator, shapes: list[tuple[int, ...]], dtype: str) -> list[Array]:
    """Inputs of a call over the whole range of integers, or normal floats."""
    if dtype == "f4":
        return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    info = np.iinfo(dtype)
    return [rng.integers(info.min, info.max + 1, shape).astype(dtype) for shape in shapes]
