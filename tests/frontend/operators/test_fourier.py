"""RFFT2D and operators on complex numbers against LiteRT: complex results have an axis of parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model, trace_model
from microfold.ir.interpret import Interpreter
from microfold.verification import verify
from tests import oracle
from tests.tflite_writer import Writer

Shape = tuple[int, ...]
Build = Callable[[Writer, int], None]
SHAPE: Shape = (2, 3, 4)


def rfft2d(writer: Writer, x: int, shape: Shape, lengths: tuple[int, int], *, inner: bool = False) -> int:
    numbers = writer.tensor((2,), "i4", data=np.array(lengths))
    result = writer.tensor((*shape[:-2], lengths[0], lengths[1] // 2 + 1), "c8")
    writer.operator("RFFT2D", [x, numbers], result, "Rfft2dOptions", inner=inner)
    return result


def transform(shape: Shape, lengths: tuple[int, int]) -> bytes:
    writer = Writer()
    rfft2d(writer, writer.input(shape, "f4"), shape, lengths)
    return writer.pack()


def check(data: bytes) -> None:
    traced = trace_model(data)
    calls = [oracle.inputs_of(traced, seed) for seed in range(4)]
    wanted = oracle.compared_tensors(data, traced)
    assert wanted
    assert not oracle.differences(traced, calls, oracle.litert(data, calls, wanted))


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [
        ((3, 1, 64), (1, 64)),
        ((2, 3, 1, 50), (1, 64)),  # zeros follow
        ((3, 1, 70), (1, 64)),  # cut
        ((4, 8), (1, 8)),
        ((2, 8, 16), (8, 16)),
        ((3, 9), (4, 8)),
        ((9, 3), (8, 4)),
        ((2, 1), (4, 2)),
        ((2, 2), (2, 2)),
        ((1, 1, 5), (1, 2)),
        ((1, 1, 2), (2, 16)),
    ],
)
def test_lengths(shape: Shape, lengths: tuple[int, int]) -> None:
    check(transform(shape, lengths))


@pytest.mark.parametrize(
    ("shape", "lengths", "rule"),
    [
        ((8,), (1, 8), "two axes"),
        ((1, 12), (1, 12), "powers of two"),
        ((1, 8), (0, 8), "powers of two"),
        ((1, 8), (-1, 8), "powers of two"),
        ((1, 8), (1, 1), "more than 1 column"),
        ((1, 8), (1, 1 << 17), "at most 65536"),
    ],
)
def test_refused_lengths(shape: Shape, lengths: tuple[int, int], rule: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rule):
        import_model(transform(shape, lengths))


def real(name: str) -> Build:
    def build(writer: Writer, x: int) -> None:
        writer.operator(name, [x], writer.tensor(SHAPE, "f4"))

    return build


def moved(name: str, shape: Shape, options: str = "", *numbers: object, **fields: object) -> Build:
    """A complex result of this shape; `numbers` are constants behind the input."""

    def build(writer: Writer, x: int) -> None:
        arrays = [np.array(n) for n in numbers]
        constants = [writer.tensor(array.shape, "i4", data=array) for array in arrays]
        writer.operator(name, [x, *constants], writer.tensor(shape, "c8"), options, **fields)

    return build


def select(writer: Writer, x: int) -> None:
    condition, other = writer.input(SHAPE, "?"), writer.input(SHAPE, "c8")
    writer.operator("SELECT_V2", [condition, x, other], writer.tensor(SHAPE, "c8"))


def multiply(writer: Writer, x: int) -> None:
    writer.operator("MUL", [x, writer.input(SHAPE, "c8")], writer.tensor(SHAPE, "c8"), "MulOptions")


def cast(dtype: str) -> Build:
    def build(writer: Writer, x: int) -> None:
        writer.operator("CAST", [x], writer.tensor(SHAPE, dtype), "CastOptions")

    return build


def magnitude_of_squeezed(writer: Writer, x: int) -> None:
    """As converters write a short-time transform."""
    flat, numbers = writer.tensor((2, 12), "c8"), writer.tensor((2,), "i4", data=np.array([2, 12]))
    writer.operator("RESHAPE", [x, numbers], flat, inner=True)
    writer.operator("COMPLEX_ABS", [flat], writer.tensor((2, 12), "f4"))


CASES: dict[str, Build] = {
    **{name: real(name) for name in ("COMPLEX_ABS", "REAL", "IMAG")},
    "RESHAPE": moved("RESHAPE", (4, 6), "", [4, 6]),
    "EXPAND_DIMS": moved("EXPAND_DIMS", (2, 3, 1, 4), "ExpandDimsOptions", 2),
    "SLICE": moved("SLICE", (2, 2, 2), "", [0, 1, 2], [2, 2, 2]),
    "STRIDED_SLICE": moved(
        "STRIDED_SLICE", (2, 2, 2), "StridedSliceOptions", [0, 0, 3], [2, 3, -5], [1, 2, -2]
    ),
    "TRANSPOSE": moved("TRANSPOSE", (4, 2, 3), "", [2, 0, 1]),
    "TILE": moved("TILE", (2, 6, 8), "", [1, 2, 2]),
    "SELECT_V2": select,
    "MUL": multiply,
    "CAST to float32": cast("f4"),
    "magnitude": magnitude_of_squeezed,
}


def complex_model(name: str) -> bytes:
    """The model of one of `CASES`."""
    writer = Writer()
    CASES[name](writer, writer.input(SHAPE, "c8"))
    return writer.pack()


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    check(complex_model(name))


def test_real_to_complex() -> None:
    writer = Writer()
    writer.operator("CAST", [writer.input(SHAPE, "f4")], writer.tensor(SHAPE, "c8"), "CastOptions")
    check(writer.pack())


def test_magnitudes_whose_squares_leave_float32() -> None:
    writer = Writer()
    real("COMPLEX_ABS")(writer, writer.input(SHAPE, "c8"))
    parts = np.zeros((*SHAPE, 2), np.float32)
    parts[..., 0] = np.array([3e-38, 3e-30, 0, 3e30]).astype(np.float32)
    parts[..., 1] = parts[..., 0]
    (result,) = Interpreter(import_model(writer.pack())).run(parts)
    np.testing.assert_allclose(result, parts[..., 0].astype(np.float64) * np.sqrt(2), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "result", "rule"),
    [("ADD", "c8", "is complex"), ("REAL", "c8", "declared"), ("RESHAPE", "f4", "declared")],
)
def test_refused(name: str, result: str, rule: str) -> None:
    writer = Writer()
    x = writer.input(SHAPE, "c8")
    writer.operator(name, [x, x] if name == "ADD" else [x], writer.tensor(SHAPE, result))
    with pytest.raises(UnsupportedModelError, match=rule):
        import_model(writer.pack())


def spectrogram() -> bytes:
    """A log-mel spectrogram as TensorFlow's converter writes it: 5 frames of 12 samples, every 4."""
    writer, rng = Writer(), np.random.default_rng(0)

    def constant(array: object, dtype: str = "i4") -> int:
        return writer.tensor(np.shape(np.array(array)), dtype, data=np.array(array))

    def step(name: str, shape: Shape, inputs: list[int], options: str = "", dtype: str = "f4") -> int:
        result = writer.tensor(shape, dtype)
        writer.operator(name, inputs, result, options, inner=name != "LOG")
        return result

    x = step("RESHAPE", (7, 4), [writer.input((28,), "f4"), constant([7, 4])])
    frames = np.arange(5)[:, None] + np.arange(3)
    x = step("GATHER", (5, 3, 4), [x, constant(frames)], "GatherOptions")
    x = step("RESHAPE", (5, 12), [x, constant([5, 12])])
    x = step("MUL", (5, 12), [x, constant(np.hanning(12), "f4")], "MulOptions")
    x = step("PAD", (5, 16), [x, constant([[0, 0], [0, 4]])])
    x = step("RESHAPE", (5, 1, 16), [x, constant([5, 1, 16])])
    x = rfft2d(writer, x, (5, 1, 16), (1, 16), inner=True)
    x = step("RESHAPE", (5, 9), [x, constant([5, 9])], dtype="c8")
    x = step("COMPLEX_ABS", (5, 9), [x])
    weights, bias = constant(rng.random((4, 9)), "f4"), constant(np.full(4, 1e-3), "f4")
    x = step("FULLY_CONNECTED", (5, 4), [x, weights, bias], "FullyConnectedOptions")
    step("LOG", (5, 4), [x])
    return writer.pack()


def test_spectrogram() -> None:
    """Every tensor is LiteRT's; the padding goes; and the C computes it."""
    data = spectrogram()
    check(data)
    program = compile_graph(import_model(data), target.load("host"))
    operators = [node.op.name for node in program.graph.nodes]
    assert "signal_rfft" in operators
    assert "pad" not in operators
    assert verify.verify(program, verify.input_sets([b.type for b in program.inputs], 4)).exact
