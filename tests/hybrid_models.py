"""Files of one hybrid operator: float32 activations, integer weights, drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from msgspec import Struct

from tests.tflite_writer import Array, Writer

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")
_RANGES = {8: (-127, 128), 4: (-8, 8), 2: (-2, 2)}


class Draw(Struct, frozen=True):
    """A file, and the shape of its input."""

    data: bytes
    shape: tuple[int, ...]


def activations(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Of any magnitude; some on one side of 0, many zeros, or at ties of their steps."""
    x = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3)
    kind = rng.integers(0, 7)
    if kind == 0:
        x = np.abs(x)
    elif kind == 1:
        x = -np.abs(x)
    elif kind == 2:
        x[rng.random(shape) < 0.7] = 0
    elif kind == 3:  # multiples of half a symmetric step
        x = rng.integers(-254, 255, shape) / 2.0
        x.reshape(-1)[0] = 127
    elif kind == 4 and rng.random() < 0.3:
        x[:] = 0
    return x.astype(np.float32)


def _scales(rng: np.random.Generator, count: int) -> Array:
    return (10.0 ** rng.uniform(-4, -1, count)).astype(np.float32)


def _weights(rng: np.random.Generator, shape: tuple[int, ...], bits: int) -> Array:
    return rng.integers(*_RANGES[bits], shape).astype(np.int8)


def _activation(name: str) -> int:
    return getattr(tflite.ActivationFunctionType, name)


def fully_connected(
    rng: np.random.Generator, bits: int = 8, *, per_channel: bool, asymmetric: bool, bias: bool = True
) -> Draw:
    batch, depth, units = (int(rng.integers(1, high)) for high in (6, 70, 20))
    depth += -depth % 4
    writer = Writer()
    x = writer.input((batch, depth), "f4")
    scales = _scales(rng, units if per_channel else 1)
    weights = writer.tensor((units, depth), "i1", scales, data=_weights(rng, (units, depth), bits), bits=bits)
    added = writer.tensor((units,), "f4", data=rng.standard_normal(units)) if bias else -1
    y = writer.tensor((batch, units), "f4")
    writer.operator(
        "FULLY_CONNECTED",
        [x, weights, added],
        y,
        "FullyConnectedOptions",
        FusedActivationFunction=_activation(str(rng.choice(ACTIVATIONS))),
        AsymmetricQuantizeInputs=asymmetric,
    )
    return Draw(writer.pack(), (batch, depth))


def transposed_convolution(rng: np.random.Generator) -> Draw:
    batch, height, width, channels, filters = (int(n) for n in rng.integers(1, 5, 5))
    kernel, strides = rng.integers(1, 5, 2).tolist(), rng.integers(1, 4, 2).tolist()
    same = bool(rng.integers(2))
    size = [
        n * s if same else (n - 1) * s + k for n, s, k in zip((height, width), strides, kernel, strict=True)
    ]
    writer = Writer()
    shape = (batch, height, width, channels)
    filter_shape = (filters, *kernel, channels)
    scales = _scales(rng, filters if rng.integers(2) else 1)
    operands = [
        writer.tensor((4,), "i4", data=np.array([batch, *size, filters])),
        writer.tensor(filter_shape, "i1", scales, data=_weights(rng, filter_shape, 8)),
        writer.input(shape, "f4"),
    ]
    if rng.integers(2):
        operands.append(writer.tensor((filters,), "f4", data=rng.standard_normal(filters)))
    writer.operator(
        "TRANSPOSE_CONV",
        operands,
        writer.tensor((batch, *size, filters), "f4"),
        "TransposeConvOptions",
        Padding=tflite.Padding.SAME if same else tflite.Padding.VALID,
        StrideH=strides[0],
        StrideW=strides[1],
    )
    return Draw(writer.pack(), shape)


def blockwise(rng: np.random.Generator, activation: str = "NONE") -> Draw:
    length, blocks = int(rng.choice([32, 64])), int(rng.integers(1, 4))
    batch, units, depth = int(rng.integers(1, 5)), int(rng.integers(4, 20)), length * blocks
    writer = Writer()
    x = writer.input((batch, depth), "f4")
    scales = writer.tensor((units, blocks), "f2", data=_scales(rng, units * blocks) + np.float32(1e-3))
    matrix = _weights(rng, (units, depth), 4)
    weights = writer.tensor((units, depth), "i1", data=matrix, bits=4, blocks=(scales, length))
    bias = writer.tensor((units,), "f4", data=rng.standard_normal(units))
    y = writer.tensor((batch, units), "f4")
    writer.operator(
        "FULLY_CONNECTED",
        [x, weights, bias],
        y,
        "FullyConnectedOptions",
        FusedActivationFunction=_activation(activation),
    )
    return Draw(writer.pack(), (batch, depth))


def convolution(
    rng: np.random.Generator,
    bits: int = 8,
    *,
    depthwise: bool = False,
    scales: str = "channel",
    groups: int = 1,
    stored: int | None = None,
) -> Draw:
    """A CONV_2D or DEPTHWISE_CONV_2D.

    Args:
        scales: one a ``channel``, one a ``tensor``, or all ``equal``.
        stored: bits of a weight in the file, where they are not `bits`.
    """
    batch, height, width = int(rng.integers(1, 4)), int(rng.integers(3, 9)), int(rng.integers(3, 9))
    kernel = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    strides = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    dilations = (2, 1) if strides == (1, 1) and kernel[0] == 2 and not depthwise else (1, 1)
    channels = groups * int(rng.integers(1, 5))
    multiplier = int(rng.integers(1, 3))
    filters = channels * multiplier if depthwise else groups * int(rng.integers(1, 6))
    same = bool(rng.integers(2))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [
        -(-n // s) if same else (n - e) // s + 1
        for n, e, s in zip((height, width), extent, strides, strict=True)
    ]
    writer = Writer()
    shape = (batch, height, width, channels)
    x = writer.input(shape, "f4")
    filter_shape = (1, *kernel, filters) if depthwise else (filters, *kernel, channels // groups)
    drawn = _scales(rng, filters if scales == "channel" else 1)
    if scales == "equal":
        drawn = np.repeat(drawn, filters)
    weights = writer.tensor(
        filter_shape,
        "i1",
        drawn,
        data=_weights(rng, filter_shape, bits),
        axis=3 if depthwise else 0,
        bits=stored or bits,
    )
    bias = writer.tensor((filters,), "f4", data=rng.standard_normal(filters))
    y = writer.tensor((batch, *size, filters), "f4")
    fields = {
        "Padding": tflite.Padding.SAME if same else tflite.Padding.VALID,
        "StrideH": strides[0],
        "StrideW": strides[1],
        "DilationHFactor": dilations[0],
        "DilationWFactor": dilations[1],
        "FusedActivationFunction": _activation(str(rng.choice(ACTIVATIONS))),
    }
    if depthwise:
        fields["DepthMultiplier"] = multiplier
    kind, options = (
        ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
    )
    writer.operator(kind, [x, weights, bias], y, options, **fields)
    return Draw(writer.pack(), shape)


def batch_matmul(rng: np.random.Generator, *, adj_x: bool, adj_y: bool, asymmetric: bool) -> Draw:
    batch, rows, depth, columns = (int(rng.integers(1, 7)) for _ in range(4))
    writer = Writer()
    shape = (batch, depth, rows) if adj_x else (batch, rows, depth)
    matrix = (columns, depth) if adj_y else (depth, columns)
    x = writer.input(shape, "f4")
    weights = writer.tensor(matrix, "i1", _scales(rng, 1), data=_weights(rng, matrix, 8))
    y = writer.tensor((batch, rows, columns), "f4")
    writer.operator(
        "BATCH_MATMUL",
        [x, weights],
        y,
        "BatchMatMulOptions",
        AdjX=adj_x,
        AdjY=adj_y,
        AsymmetricQuantizeInputs=asymmetric,
    )
    return Draw(writer.pack(), shape)


class HybridWriter(Writer):
    """Writes recurrent operators of float32 with int8 weights, one scale each; vectors only if an LSTM reads
    them as a peephole.
    """

    def __init__(self, *, asymmetric: bool) -> None:
        super().__init__()
        self.asymmetric = asymmetric
        self._vectors: dict[int, Array] = {}

    def tensor(self, shape: Any, dtype: str, *args: Any, data: Array | None = None, **more: Any) -> int:
        if dtype == "f4" and data is not None and len(shape) == 2:
            return self._integers(data)
        index = super().tensor(shape, dtype, *args, data=data, **more)
        if dtype == "f4" and data is not None:
            self._vectors[index] = data
        return index

    def operator(self, name: str, inputs: Any, *args: Any, **more: Any) -> None:
        operands = list(inputs)
        if "LSTM" in name:
            for place in PEEPHOLE if name != "BIDIRECTIONAL_SEQUENCE_LSTM" else (*PEEPHOLE, 26, 27, 28):
                if operands[place] >= 0:
                    operands[place] = self._integers(self._vectors[operands[place]])
        super().operator(name, operands, *args, AsymmetricQuantizeInputs=self.asymmetric, **more)

    def _integers(self, data: Array) -> int:
        scale = np.float32(np.abs(data).max() / 127)
        return super().tensor(data.shape, "i1", scale, data=np.round(data / scale))


PEEPHOLE = (9, 10, 11)


def svdf(
    w: Writer, rng: np.random.Generator, *, activation: str = "NONE", bias: bool = True
) -> tuple[int, int]:
    """An SVDF layer, an input and an output of the file. Returns the shape of its input."""
    batch, inputs, units, rank, steps = (int(rng.integers(1, high)) for high in (4, 24, 12, 3, 8))
    filters = units * rank

    def constant(*shape: int) -> int:
        return w.tensor(shape, "f4", data=rng.standard_normal(shape) / np.sqrt(shape[-1]))

    operands = [w.input((batch, inputs), "f4"), constant(filters, inputs), constant(filters, steps)]
    operands.append(constant(units) if bias else -1)
    operands.append(w.tensor((batch, filters * steps), "f4", variable=True))
    y = w.tensor((batch, units), "f4")
    w.operator("SVDF", operands, y, "SVDFOptions", Rank=rank, FusedActivationFunction=_activation(activation))
    return batch, inputs
