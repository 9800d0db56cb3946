"""Recurrent operators with random weights, as operators of small `.tflite` files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tflite

from tests.tflite_writer import Array, Writer

TANH = tflite.ActivationFunctionType.TANH
GATE = 2.0**-12


@dataclass(frozen=True)
class Sequence:
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


def float_lstm(
    w: Writer,
    rng: np.random.Generator,
    size: Sequence,
    *,
    coupled: bool = False,
    peephole: bool = False,
    projection: int = 0,
    norm: bool = False,
    clips: tuple[float, float] = (0.0, 0.0),
) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of float32, an input and an output of the file.

    Args:
        projection: its outputs; 0: none.
    """
    outputs = projection or size.units

    def constant(*shape: int, large: float = 1.0) -> int:
        data = rng.standard_normal(shape) * large
        return w.tensor(shape, "f4", data=data)

    operands = [w.input(size.shape(size.inputs), "f4"), *[-1] * 23]
    for gate in range(1 if coupled else 0, 4):
        operands[1 + gate] = constant(size.units, size.inputs, large=1 / np.sqrt(size.inputs))
        operands[5 + gate] = constant(size.units, outputs, large=1 / np.sqrt(outputs))
        operands[12 + gate] = constant(size.units)
        if norm:
            operands[20 + gate] = constant(size.units)
        if peephole and gate != 2:
            operands[9 + min(gate, 2)] = constant(size.units, large=0.5)
    if projection:
        operands[16] = constant(projection, size.units, large=1 / np.sqrt(size.units))
        operands[17] = constant(projection)
    operands[18] = w.tensor((size.batch, outputs), "f4", variable=True)
    operands[19] = w.tensor((size.batch, size.units), "f4", variable=True)
    y = w.tensor(size.shape(outputs), "f4")
    _lstm(w, operands, y, size, *clips)


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


def inputs_of(rng: np.random.Generator, shapes: list[tuple[int, ...]], dtype: str) -> list[Array]:
    """Inputs of a call over the whole range of integers, or normal floats."""
    if dtype == "f4":
        return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    info = np.iinfo(dtype)
    return [rng.integers(info.min, info.max + 1, shape).astype(dtype) for shape in shapes]
