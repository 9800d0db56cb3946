"""Compiled models as Python objects."""

from __future__ import annotations

import gc
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import microfold
from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError, TargetError, ToolError
from microfold.host.library import HostLibrary
from microfold.host.ports import Port
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.types import Array, DType, TensorType
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.passes.instruments import Timing
from microfold.pipeline import default_pipeline
from microfold.transform.simplify.remove_redundant_reshape import remove_redundant_reshape
from microfold.verification.verify import input_sets
from tests.codegen import graphs

CNN = Path(__file__).resolve().parents[1] / "models" / "made" / "cnn_int8.tflite"


@pytest.fixture(scope="module")
def cnn() -> Session:
    return microfold.compile(CNN)


@pytest.fixture
def images() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(-128, 128, (1, 8, 8, 1)).astype(np.int8) for _ in range(4)]


def test_a_file_is_called_with_arrays(cnn: Session, images: list[Array]) -> None:
    interpreter = Interpreter(cnn.program.source)
    for image in images:
        (output,) = cnn.run(image)
        assert output.shape == (1, 10) and output.dtype == np.int8
        np.testing.assert_array_equal(output, interpreter.run(image)[0])


def test_outputs_are_the_callers_own(cnn: Session, images: list[Array]) -> None:
    (first,) = cnn.run(images[0])
    kept = np.array(first)
    cnn.run(images[1])
    np.testing.assert_array_equal(first, kept)


def test_inputs_in_any_layout_and_place(cnn: Session, images: list[Array]) -> None:
    (expected,) = cnn.run(images[0])
    rows = np.asfortranarray(images[0])
    shifted = np.zeros(65, np.int8)[1:].reshape(1, 8, 8, 1)
    shifted[:] = images[0]
    caller = microfold.compile(CNN, io="caller")
    for array in (rows, shifted, images[0][:, ::-1][:, ::-1]):
        before = array.copy()
        np.testing.assert_array_equal(cnn.run(array)[0], expected)
        np.testing.assert_array_equal(caller.run(array)[0], expected)
        np.testing.assert_array_equal(array, before)


def test_several_outputs_are_a_tuple() -> None:
    session = Session(compile_graph(graphs.several_outputs(), target.load("host")))
    outputs = session.run(np.ones((1, 8), np.int8))
    assert [o.shape for o in outputs] == [
        (1, 6),
        (1, 4),
        (2, 3),
        (1, 4),
        (1, 8),
    ]


SHAPE = (1, 8, 8, 1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "the model has 1 inputs; got 0 arrays: pass one array per input, in the order 'serving"),
        ([np.zeros(SHAPE, np.int8)] * 2, "the model has 1 inputs; got 2"),
        (
            [np.zeros((8, 8), np.int8)],
            r"must be int8\[1,8,8,1\]; got int8\[8, 8\]: .*\.reshape\(\(1, 8",
        ),
        ([np.zeros((4, 8, 8, 1), np.int8)], r"got int8\[4, 8, 8, 1\]: pass 1 of its 4 entries per call"),
        ([np.zeros(SHAPE, np.uint8)], r"got uint8\[1, 8, 8, 1\]: .* \.astype\('int8'\); for real"),
        ([np.zeros(SHAPE)], r"got float64\[1, 8, 8, 1\]: .*; for real numbers, call session\(x\), or"),
        ([[1, 2, 3]], r"must be int8\[1,8,8,1\]; got int64\[3\]: each call takes 64 numbers; got 3"),
        ([[[1], [2, 3]]], "must be one array"),
    ],
)
def test_wrong_inputs_are_refused(cnn: Session, arrays: list[Array], message: str) -> None:
    for call in (cnn.run, cnn.run_layers, cnn.intermediates):
        with pytest.raises(InputError, match=message):
            call(*arrays)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((8, 8)), r"must be real numbers \[1,8,8,1\]; got float64\[8, 8\]: .* \.reshape\("),
        (np.zeros(SHAPE, np.int8), r"int8 is the stored type of this input: .* call session\.run\(x\)"),
        (np.full(SHAPE, "a"), r"convert it to numbers with \.astype\('float32'\)"),
    ],
)
def test_wrong_real_numbers_are_refused(cnn: Session, array: Array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cnn(array)


def test_all_wrong_inputs_are_named() -> None:
    session = Session(compile_graph(graphs.two_inputs(), target.load("host")))
    with pytest.raises(InputError, match=r"input 0 .*; input 1 "):
        session(*[np.zeros(3)] * len(session.inputs))


def test_state_is_kept_and_reset() -> None:
    session = Session(compile_graph(graphs.accumulator(), target.load("host")))
    x = np.ones((1, 5), np.float32)
    first, second = session(x)[0], session(x)[0]
    assert not np.array_equal(first, second)
    session.reset()
    np.testing.assert_array_equal(session(x)[0], first)
    np.testing.assert_array_equal(session(x)[0], second)


def test_sessions_of_one_program_are_independent() -> None:
    program = compile_graph(graphs.accumulator(), target.load("host"))
    x = np.ones((1, 5), np.float32)
    one, other = Session(program), Session(program)
    first = one(x)[0]
    one(x)
    np.testing.assert_array_equal(other(x)[0], first)


def test_observing_changes_nothing(cnn: Session, images: list[Array]) -> None:
    (plain,) = cnn.run(images[0])
    outputs, values = cnn.run_layers(images[0])
    np.testing.assert_array_equal(outputs[0], plain)
    assert [v.name for v in values] == [layer.label for layer in cnn.program.layers]
    np.testing.assert_array_equal(cnn.run(images[0])[0], plain)


def test_intermediates_have_the_names_of_the_layers(cnn: Session, images: list[Array]) -> None:
    values = cnn.intermediates(images[0])
    assert list(values) == [layer.name for layer in cnn.program.layers]
    assert {a.shape for a in values.values()} == {layer.outputs[0].type.shape for layer in cnn.program.layers}
    np.testing.assert_array_equal(values[cnn.program.layers[-1].name], cnn.run(images[0])[0])


def test_threads_share_a_session(cnn: Session, images: list[Array]) -> None:
    expected = [cnn.run(image)[0] for image in images]
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(50):
            if not np.array_equal(cnn.run(images[index])[0], expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(images))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ports_tell_what_they_are(cnn: Session) -> None:
    (port,) = cnn.inputs
    assert port.shape == (1, 8, 8, 1) and port.dtype == np.int8
    assert port.scale == pytest.approx(1 / 255) and port.zero_point == -128
    assert repr(cnn) == (
        "<Session cnn_int8: 'serving_default_keras_tensor:0' int8[1,8,8,1] -> "
        "'StatefulPartitionedCall_1:0' int8[1,10]>"
    )
    assert (
        repr(port) == "<Port 'serving_default_keras_tensor:0' int8[1,8,8,1], real = 0.00392157 * (q - -128)>"
    )
    assert "<td>int8[1,8,8,1]</td>" in cnn._repr_html_() and "<td>int8[1,8,8,1]</td>" in port._repr_html_()


def test_real_numbers(cnn: Session) -> None:
    (port,) = cnn.inputs
    assert port.scale is not None and port.zero_point is not None
    real = np.array([-1.0, 0.0, 0.3, 1.0, 7.0]) * np.ones((8, 1))
    with pytest.raises(InputError, match=r"shape \[1, 8, 8, 1\]; got \[8, 5\]"):
        port.quantize(real)
    assert set(port.quantize(-1.0).reshape(-1)) == {-128} and set(port.quantize(7.0).reshape(-1)) == {127}
    values = np.random.default_rng(1).uniform(0, 1, port.shape)
    assert np.abs(port.dequantize(port.quantize(values)) - values).max() <= port.scale / 2 * 1.001
    (output,) = cnn.outputs
    probabilities = cnn(values)
    assert probabilities.dtype == np.float32 and abs(probabilities.sum() - 1) < 0.05
    stored = output.dequantize(cnn.run(port.quantize(values))[0])
    np.testing.assert_array_equal(probabilities, stored)
    np.testing.assert_array_equal(cnn(values.tolist()), stored)
    assert (port.quantize(np.nan) == port.quantize(0.0)).all()


def test_integers_are_not_rounded() -> None:
    port = Port("ids", TensorType(DType.INT32, (2,)))
    assert port.quantize([1.0, -7]).tolist() == [1, -7]
    for wrong in (0.5, 2**31, np.nan):
        with pytest.raises(InputError, match="fractions or out of its range: round or clip them"):
            port.quantize([1, wrong])


def test_float_ports_pass_numbers_through() -> None:
    session = Session(compile_graph(graphs.accumulator(), target.load("host")))
    (port,) = session.inputs
    assert port.scale is None and port.zero_point is None
    np.testing.assert_array_equal(port.quantize(0.1), np.full((1, 5), np.float32(0.1)))
    np.testing.assert_array_equal(port.dequantize(port.quantize(0.1)), port.quantize(0.1))


def test_graphs_and_names() -> None:
    session = microfold.compile(graphs.chain(), name="My Net", single_file=True, optimize="size")  # type: ignore[arg-type]
    assert session.program.name == "my_net" and session.program.options.single_file
    (values,) = [session.run(*values)[0] for values in input_sets([p.type for p in session.inputs], 1)]
    assert values.shape == (1, 7)


TEXT = """
graph @small(%x: int8[1,4] q(0.1, 3)) -> (%y) {
  %a: float32[1,4] = dequantize(%x)
  %b: float32[2,2] = reshape(%a) {shape=(2, 2)}
  %y: int8[2,2] q(0.1, 3) = quantize(%b)
}
"""


def test_text_form_and_passes(tmp_path: Path) -> None:
    path = tmp_path / "small.mf"
    path.write_text(TEXT)
    x = np.array([[-128, 0, 3, 127]], np.int8)
    expected = x.reshape(2, 2)
    timing, seen = Timing(), list[str]()

    @function_pass(opt_level=0)
    def look(graph: Graph, context: PassContext) -> Graph:  # noqa: ARG001
        seen.append(" ".join(node.op.name for node in graph.nodes))
        return graph

    assert [layer.node.op.name for layer in microfold.compile(path).program.layers] == ["copy"]
    sessions = [
        microfold.compile(path, passes=default_pipeline().with_pass(look, before="fold_quantize")),
        microfold.compile(path, disabled=["fake_quantization_to_integer"], instruments=[timing]),
        microfold.compile(path, opt_level=0),
        microfold.compile(path, passes=[look, remove_redundant_reshape]),
    ]
    assert [len(session.program.layers) for session in sessions] == [1, 2, 2, 2]
    for session in sessions:
        np.testing.assert_array_equal(session.run(x)[0], expected)
    assert seen == ["dequantize quantize reshape", "reshape", "dequantize reshape quantize"]
    names = {name for name, _ in timing.seconds}
    assert "fold_quantize" in names and "fake_quantization_to_integer" not in names


def test_wrong_choices_are_refused() -> None:
    with pytest.raises(InputError, match="SIMD instructions that this machine lacks; use target='host'"):
        microfold.compile(CNN, "cortex-m4")
    with pytest.raises(TargetError, match="unknown target 'pdp11'"):
        microfold.compile(CNN, "pdp11")
    with pytest.raises(InputError, match="unknown option speed; known are optimize, flash, ram, objective"):
        microfold.compile(CNN, speed=True)
    with pytest.raises(InputError, match="unknown pass fold_padding; known are"):
        microfold.compile(CNN, disabled=["fold_padding"])
    with pytest.raises(InputError, match="io must be one of arena, caller"):
        microfold.compile(CNN, io="nowhere")


def test_a_core_without_simd_runs_here(cnn: Session, images: list[Array]) -> None:
    session = microfold.compile(CNN, "cortex-m0plus")
    np.testing.assert_array_equal(session.run(images[0])[0], cnn.run(images[0])[0])


def test_no_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: list[Array]) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session = microfold.compile(CNN)
    session.run(images[0])
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("CC", "cc --nonsense")
    with pytest.raises(ToolError, match=r"cc failed \(1\):(.|\n)*nonsense"):
        microfold.compile(CNN)
    assert not list(tmp_path.iterdir())


def test_a_missing_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    with pytest.raises(ToolError, match="'no-such-compiler' is not on PATH"):
        microfold.compile(CNN)


def test_libraries_are_unloaded() -> None:
    """A long-lived process may compile many models."""
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        pytest.skip("needs /proc")
    library = HostLibrary(compile_graph(graphs.chain("unloaded"), target.load("host")))
    assert "libunloaded.so" in maps.read_text()
    del library
    gc.collect()
    assert "libunloaded.so" not in maps.read_text()
