"""Layers to measure that have states: cells of recurrent networks, and SVDF."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from microfold.frontend.tflite import import_model
from microfold.ir.graph import Graph, State
from microfold.ir.node import Value, make_node
from microfold.ir.types import DType, Quant, Shape, TensorType
from microfold.ops.recurrent.svdf import Svdf
from tests.kernels.row_cases import element
from tests.recurrent_models import Parts, Sequence, float_lstm, float_rnn, integer_lstm, lstm_8x8_16
from tests.tflite_writer import Writer

SEQUENCES = (
    Sequence(batch=2, steps=4, inputs=8, units=3),
    Sequence(steps=2, inputs=1, units=1),
    Sequence(steps=5, inputs=7, units=10),
    Sequence(steps=3, inputs=20, units=33),
    Sequence(steps=2, inputs=64, units=16),
    Sequence(steps=8, inputs=4, units=24),
    Sequence(batch=3, steps=3, inputs=12, units=12),
    Sequence(steps=6, inputs=40, units=9),
    Sequence(steps=12, inputs=3, units=5),
    Sequence(steps=2, inputs=30, units=48),
)
# Inputs, units, rank and steps of SVDF.
MORE_FILTERS = ((24, 20, 1, 5), (9, 6, 3, 12), (33, 40, 2, 2), (128, 10, 1, 20))


def cells() -> Iterator[Graph]:
    """Each graph has states of its own."""
    for index, size in enumerate(SEQUENCES):
        for kind in ("i1", "i2", "lstm", "rnn"):
            writer, rng = Writer(), np.random.default_rng(index)
            if kind == "lstm":
                float_lstm(writer, rng, size, Parts(peephole=index % 2 == 1))
            elif kind == "rnn":
                float_rnn(writer, rng, size, "TANH" if index % 2 else "RELU")
            else:
                integer_lstm(writer, rng, size, kind)
            yield import_model(writer.pack())
        parts = Parts(index % 2 == 1, index % 3 == 1, min(index, size.units) * (index % 4 > 1), index % 5 < 2)
        writer, rng = Writer(), np.random.default_rng(index)
        lstm_8x8_16(writer, rng, size, parts if parts != Parts() else Parts(peephole=True))
        yield import_model(writer.pack())
    for inputs, units, rank, steps in (
        (5, 3, 2, 4),
        (16, 8, 1, 8),
        (40, 12, 2, 10),
        (64, 32, 4, 3),
        *MORE_FILTERS,
    ):
        yield from (_svdf(dtype, inputs, units, rank, steps) for dtype in (DType.INT8, DType.FLOAT32))


def _svdf(dtype: DType, inputs: int, units: int, rank: int, steps: int) -> Graph:
    rng, integers = np.random.default_rng(0), dtype is DType.INT8
    wide, bias_type = (DType.INT16, DType.INT32) if integers else (dtype, dtype)

    def value(name: str, kind: DType, shape: Shape, scale: float) -> Value:
        return Value(name, TensorType(kind, shape, Quant.per_tensor(scale) if integers else None))

    filters = units * rank
    x = value("x", dtype, (1, inputs), 0.05)
    feature = value("feature", dtype, (filters, inputs), 0.02)
    time = value("time", wide, (filters, steps), 0.001)
    bias = value("bias", bias_type, (units,), 0.001)
    state = value("state", wide, (1, filters * steps), 0.004)
    constants = {
        v: rng.integers(-100, 100, v.type.shape).astype(v.type.dtype.numpy) for v in (feature, time, bias)
    }
    op = Svdf(rank, element(dtype))
    node = make_node(op, [x, feature, time, bias, state], ["out", "next"])
    initial = np.zeros(state.type.shape, wide.numpy)
    states = (State(state, initial, node.outputs[1]),)
    return Graph("net", (x,), node.outputs[:1], (node,), constants, states)
