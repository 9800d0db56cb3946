"""Other element types of inputs and outputs: the network computes the same, and needless conversions go."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from microfold import target as targets
from microfold.compiler import compile_file, compile_graph
from microfold.errors import InputError
from microfold.frontend.tflite import load
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value
from microfold.ir.text import parse
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.options import IO_TYPES, Options
from microfold.passes.context import PassContext
from microfold.pipeline import optimize
from microfold.transform.requested.io_types import IoTypes
from microfold.verification.verify import input_sets, verify
from tests.command_line import refuse, succeed
from tests.frontend import models
from tests.needs import CROSS_TOOLS, need_tools

RELAXED = PassContext(numerics="relaxed")
# One network with float32, int8 and uint8 ends.
CNNS = ("cnn_int8_floatio", "cnn_int8", "cnn_uint8io")


def real(value: Value, array: Array) -> Array:
    """Return the real numbers of an array."""
    if value.type.dtype is DType.FLOAT32:
        return array
    return Dequantize().reference(Tensor(value.type, array))


def stored(value: Value, array: Array) -> Array:
    """Return the elements of the value's type for real numbers."""
    if value.type.dtype is DType.FLOAT32:
        return array
    return Quantize(value.type.element).reference(Tensor(TensorType(DType.FLOAT32, array.shape), array))


def changed(graph: Graph, kind: str, context: PassContext | None = None) -> Graph:
    return IoTypes(inputs=(kind,), outputs=(kind,))(graph, context or PassContext())


@pytest.mark.parametrize("kind", IO_TYPES)
@pytest.mark.parametrize("name", CNNS)
def test_the_network_computes_the_same(name: str, kind: str) -> None:
    """In real numbers, which are those of int8, also after the passes. All three files become one graph."""
    graph = load(models.MADE / f"{name}.tflite")
    typed = changed(graph, kind)
    assert {value.type.dtype.value for value in (*typed.inputs, *typed.outputs)} == {kind}
    assert [v.name for v in (*typed.inputs, *typed.outputs)] == [
        v.name for v in (*graph.inputs, *graph.outputs)
    ]
    optimized = optimize(typed)
    operators = [node.op.name for node in optimized.nodes]
    assert len(operators) == 6 + (0 if kind == "int8" else 2)
    int8 = changed(load(models.MADE / "cnn_int8.tflite"), "int8")
    for (numbers,) in input_sets([int8.inputs[0].type], 5):
        exact = real(int8.inputs[0], numbers)
        (expected,) = Interpreter(graph).run(stored(graph.inputs[0], exact))
        for other in (typed, optimized):
            (found,) = Interpreter(other).run(stored(typed.inputs[0], exact))
            np.testing.assert_array_equal(real(typed.outputs[0], found), real(graph.outputs[0], expected))


@pytest.mark.parametrize("point", [-128, -1, 0, 77, 127])
@pytest.mark.parametrize("source", ["int8", "uint8"])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
def test_numbers_survive(source: str, kind: str, point: int) -> None:
    """Every number of 8 bits becomes another type at an output, and itself again at an input."""
    offset = 128 * (source == "uint8")
    for scale in (1e-30, 0.0123, 1 / 3, 7e8):
        graph = parse(f"graph @g(%x: {source}[256] q({scale}, {point + offset})) -> (%x) {{\n}}\n")
        (x,) = graph.inputs
        numbers = np.arange(*x.type.dtype.range, dtype=np.int64)
        numbers = np.append(numbers, x.type.dtype.range[1]).astype(x.type.dtype.numpy)
        (there,) = Interpreter(IoTypes(outputs=(kind,))(graph, PassContext())).run(numbers)
        step = 256 if kind == "int16" else 1
        np.testing.assert_array_equal(np.diff(there.astype(np.int64)), step)
        (back,) = Interpreter(IoTypes(inputs=(kind,))(graph, PassContext())).run(there)
        np.testing.assert_array_equal(back, numbers)


def test_int16_to_bytes() -> None:
    """Rounded, so only with relaxed numerics."""
    graph = parse("graph @g(%x: int16[5] q(0.5, 0)) -> (%x) {\n}\n")
    for kind, expected in (("int8", [-128, -1, 0, 1, 127]), ("uint8", [0, 127, 128, 129, 255])):
        with pytest.raises(InputError, match=r"fewer numbers than the int16 .* --numerics relaxed"):
            IoTypes(outputs=(kind,))(graph, PassContext())
        typed = IoTypes(outputs=(kind,))(graph, RELAXED)
        (found,) = Interpreter(typed).run(np.array([-32768, -300, 100, 200, 32767], np.int16))
        assert found.tolist() == expected
        assert typed.outputs[0].type.quant == Quant.per_tensor(128.0, 128 * (kind == "uint8"))


MOVED = """graph @g(%x: float32[1,2,3]) -> (%y, %z) {
  %t: float32[1,3,2] = transpose(%x) {permutation=(0, 2, 1)}
  %p: float32[1,3,4] = pad(%t) {padding=((0, 0), (0, 0), (1, 1)), fill=0.0}
  %q: int8[1,3,4] q(0.5, 3) = quantize(%p)
  %d: float32[1,3,4] = dequantize(%q)
  %y: float32[12] = reshape(%d) {shape=(12)}
  %z: float32[1,3,4] = logistic(%d)
}"""


def test_a_quantisation_behind_moves() -> None:
    typed = IoTypes(("int8",), ("y=uint8",))(parse(MOVED), PassContext())
    element = ElementType(DType.INT8, Quant.per_tensor(0.5, 3))
    assert typed.inputs[0].type.element == element
    assert typed.outputs[0].type.element == ElementType(DType.UINT8, Quant.per_tensor(0.5, 131))
    operators = [node.op.name for node in optimize(typed).nodes]
    assert operators.count("quantize") == 0
    assert operators.count("requantize") == 1
    with pytest.raises(InputError, match="output 'z': int8 requires a quantisation in the model"):
        IoTypes(outputs=("z=int8",))(parse(MOVED), RELAXED)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("%y: float32[4] = logistic(%x)", "it is also float32"),
        ("%y: int8[4] q(0.25, 0) = quantize(%x)", "it has several quantisations"),
    ],
)
def test_inputs_that_are_read_in_several_ways(more: str, reason: str) -> None:
    graph = parse(
        f"graph @g(%x: float32[4]) -> (%q, %y) {{\n  %q: int8[4] q(0.5, 3) = quantize(%x)\n  {more}\n}}"
    )
    with pytest.raises(
        InputError, match=f"exact only if the model always has it in one quantisation; {reason}"
    ):
        IoTypes(inputs=("int8",))(graph, PassContext())
    (x,) = IoTypes(inputs=("int8",))(graph, RELAXED).inputs
    assert x.type.element == ElementType(DType.INT8, Quant.per_tensor(0.5, 3))


def test_outputs_from_several_quantisations() -> None:
    graph = parse("""graph @g(%a: int8[4] q(0.5, 3), %b: int8[4] q(0.25, 0)) -> (%y) {
      %c: float32[4] = dequantize(%a)
      %d: float32[4] = dequantize(%b)
      %y: float32[8] = concatenate(%c, %d) {axis=0}
    }""")
    with pytest.raises(InputError, match="it has several quantisations"):
        IoTypes(outputs=("int8",))(graph, PassContext())
    assert IoTypes(outputs=("int8",))(graph, RELAXED).outputs[0].type.quant == Quant.per_tensor(0.5, 3)


def test_all_problems_at_once() -> None:
    quant = "q(axis=0, scales=[0.5, 0.25], zero_points=0)"
    graph = parse(f"graph @g(%x: float32[4], %i: int32[4], %c: int8[2] {quant}) -> (%x, %i, %c) {{\n}}\n")
    with pytest.raises(InputError) as error:
        IoTypes(("w=int8", "x=int8", "i=float32", "c=uint8"), ("v=int16",))(graph, PassContext())
    lines = str(error.value).splitlines()
    assert lines[0] == "the inputs and outputs of g cannot have these types: 5 problems"
    assert lines[1] == "  - input 'w': the model has no such input; its inputs are 'x', 'i', 'c'"
    assert lines[2].startswith("  - input 'x': int8 requires a quantisation in the model")
    assert "with one scale, can have another type; it is int32[4]" in lines[3]
    assert "it is int8[2] with 2 scales" in lines[4]
    assert lines[5].startswith("  - output 'v': the model has no such output")


def test_a_type_for_all_leaves_integers_that_are_no_real_numbers() -> None:
    graph = parse("graph @g(%x: int8[4] q(0.5, 0), %i: int32[4]) -> (%i) {\n}\n")
    assert [v.type.dtype.value for v in IoTypes(("uint8",))(graph).inputs] == ["uint8", "int32"]
    assert [v.type.dtype.value for v in IoTypes(("uint8", "x=float32"))(graph).inputs] == ["float32", "int32"]
    assert [v.type.dtype.value for v in IoTypes(("x=float32", "uint8"))(graph).inputs] == ["float32", "int32"]
    with pytest.raises(InputError, match=r"outputs: int8 is for float32, .* none of 'i' is one"):
        IoTypes(outputs=("int8",))(graph)


def test_scales_that_leave_the_range() -> None:
    graph = parse("graph @g(%x: int8[4] q(1e-44, 0)) -> (%x) {\n}\n")
    with pytest.raises(InputError, match="input 'x': a scale must be in"):
        IoTypes(inputs=("int16",))(graph)


def test_states_and_outputs_that_are_inputs() -> None:
    graph = parse("""graph @g(%x: int8[4] q(0.5, 0)) -> (%s, %x) {
      state %s: int8[4] q(0.5, 0) initial [0, 0, 0, 0] next %x
    }""")
    typed = Interpreter(IoTypes(("uint8",), ("float32",))(graph))
    typed.run(np.array([128, 129, 130, 131], np.uint8))
    kept, given = typed.run(np.array([0, 128, 1, 255], np.uint8))
    assert kept.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert given.tolist() == [-64.0, 0.0, -63.5, 63.5]


def test_options_are_checked() -> None:
    for texts, message in (
        (("int4",), "must be TYPE or NAME=TYPE with one of float32, int8, uint8, int16; got 'int4'"),
        (("=int8",), "got '=int8'"),
        (("x=int8", "x=int8"), "'x' must have one type; got int8 and int8"),
        (("int8", "uint8"), "all inputs or outputs must have one type; got int8 and uint8"),
    ):
        with pytest.raises(InputError, match=message):
            Options(input_type=texts)
    with pytest.raises(InputError, match=r"output_type must be a list .*; put 'int8' in a list"):
        Options(output_type="int8")  # type: ignore[arg-type]


@pytest.mark.parametrize("io", ["arena", "caller", "rows"])
@pytest.mark.parametrize("kind", IO_TYPES)
def test_generated_code(kind: str, io: str) -> None:
    need_tools("cc")
    options = Options(input_type=(kind,), output_type=(kind,), io=io)
    program = compile_file(models.MADE / "cnn_int8.tflite", targets.load("host"), options)
    assert verify(program, input_sets([program.inputs[0].type], 4)).exact


@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
@pytest.mark.parametrize("kind", IO_TYPES)
def test_generated_code_on_cores(kind: str, core: str) -> None:
    need_tools(*CROSS_TOOLS)
    options = Options(input_type=(kind,), output_type=(kind,))
    program = compile_file(models.MADE / "cnn_uint8io.tflite", targets.load(core), options)
    assert verify(program, input_sets([program.inputs[0].type], 4)).exact


def test_layouts_and_frames() -> None:
    """Images change their layout behind the conversion, and windows their frames."""
    graph = load(Path(models.MADE / "lt_nchw_aeq_w8a8.tflite"))
    options = Options(input_type=("uint8",), io_layout="NHWC")
    program = compile_graph(graph, targets.load("host"), options)
    (b, c, h, w) = graph.inputs[0].type.shape
    assert str(program.inputs[0].type) == f"uint8[{b},{h},{w},{c}]"
    assert verify(program, input_sets([program.inputs[0].type], 3)).exact
    frames = parse("""graph @g(%x: int8[6,8] q(0.5, 3)) -> (%z) {
      %y: int8[6,8] q(0.00390625, -128) = logistic(%x)
      %z: int8[8] q(0.00390625, -128) = reduce_max(%y) {axes=(0), keep_dims=false}
    }""")
    options = Options(input_type=("float32",), sliding=0)
    program = compile_graph(frames, targets.load("host"), options)
    assert str(program.inputs[0].type) == "float32[1,8]"
    assert verify(program, input_sets([program.inputs[0].type], 12)).exact


def test_command_line(tmp_path: Path) -> None:
    model = models.MADE / "cnn_uint8io.tflite"
    np.save(tmp_path / "x.npy", np.full((1, 8, 8, 1), 0.5, np.float32))
    (port,) = load(model).outputs
    asked = ("--input-type", "float32", "--output-type", f"{port.name}=int8")
    found = json.loads(succeed("run", model, "--input", tmp_path / "x.npy", *asked, "--json"))
    np.save(tmp_path / "x.npy", np.full((1, 8, 8, 1), 128, np.uint8))
    as_made = json.loads(succeed("run", model, "--input", tmp_path / "x.npy", "--json"))
    assert np.array_equal(np.array(found["outputs"]), np.array(as_made["outputs"]) - 128)
    text = succeed("opt", model, *asked)
    assert f"{load(model).inputs[0].name}: float32[1,8,8,1])" in text
    assert "requantize" not in text
    assert "the model has no such input" in refuse("verify", model, "--input-type", "none=int8")
    succeed("build", model, *asked, "-o", tmp_path / "out")
    # The command in the generated files repeats the build.
    header = (tmp_path / "out" / "cnn_uint8io.h").read_text(encoding="utf-8")
    assert f"--input-type=float32 --output-type={port.name}=int8" in " ".join(
        header.replace(" * ", "").split()
    )
