"""Recurrent operators against the oracles' wheels, over many calls with a reset, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.parse import parse
from microfold.ir.text import to_text
from tests import oracle
from tests.hybrid_models import svdf
from tests.needs import need_modules
from tests.recurrent_models import (
    Parts,
    Sequence,
    bidirectional_lstm,
    bidirectional_rnn,
    float_lstm,
    float_rnn,
    integer_lstm,
    single_lstm,
    single_rnn,
)
from tests.tflite_writer import Writer
from tests.tools import make_recurrent

CALLS = 8
OTHERS = ("lstm", "bidirectional_lstm", "rnn", "sequence_rnn", "bidirectional_rnn", "svdf")


def random_size(rng: np.random.Generator) -> Sequence:
    batch, steps, inputs, units = (int(rng.integers(1, high)) for high in (4, 7, 24, 20))
    return Sequence(batch, steps, inputs, units, bool(rng.integers(2)))


def random_parts(rng: np.random.Generator, norm: bool) -> Parts:
    coupled, peephole, projected = (bool(n) for n in rng.integers(0, 2, 3))
    clips = float(rng.choice([0.0, 1.0])), 0.5 * projected
    return Parts(
        coupled, peephole, int(rng.integers(1, 9)) * projected, norm and bool(rng.integers(2)), clips
    )


def reset_and_run(graph: Graph, calls: list[list[np.ndarray]], reset: int) -> list[np.ndarray]:
    interpreter = Interpreter(graph)
    results: list[np.ndarray] = []
    for call, inputs in enumerate(calls):
        if call == reset:
            interpreter.reset()
        results.append(interpreter.run(*inputs)[0])
    return results


@pytest.mark.parametrize("dtype", ["i1", "i2"])
@pytest.mark.parametrize("seed", range(6))
def test_integer_lstm_is_that_of_tflm(dtype: str, seed: int) -> None:
    need_modules("tflite_micro")
    from tflite_micro import runtime

    rng = np.random.default_rng(seed)
    w, size = Writer(), random_size(rng)
    clip, cell_scale = float(rng.choice([0.0, 0.7, 2.0])), float(rng.choice([2.0**-11, 2.0**-13, 0.0007]))
    integer_lstm(w, rng, size, dtype, clip=clip, cell_scale=cell_scale)
    data = w.pack()
    info = np.iinfo(dtype)
    calls = [
        [rng.integers(info.min, info.max + 1, size.shape(size.inputs)).astype(dtype)] for _ in range(CALLS)
    ]
    interpreter = runtime.Interpreter.from_bytes(data)
    ours = reset_and_run(import_model(data), calls, reset=5)
    for call, (inputs, mine) in enumerate(zip(calls, ours, strict=True)):
        if call == 5:
            interpreter.reset()
        interpreter.set_input(inputs[0], 0)
        interpreter.invoke()
        np.testing.assert_array_equal(mine, interpreter.get_output(0), err_msg=f"call {call}")


@pytest.mark.parametrize("seed", range(6))
def test_float_lstm_is_that_of_litert(seed: int) -> None:
    need_modules("ai_edge_litert")
    rng = np.random.default_rng(seed)
    w, size = Writer(), replace(random_size(rng), units=int(rng.integers(2, 16)))
    float_lstm(w, rng, size, random_parts(rng, norm=True) if seed else Parts())
    check_against_litert(w.pack(), rng, size.shape(size.inputs))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", OTHERS)
def test_other_layers_are_those_of_litert(kind: str, seed: int) -> None:
    need_modules("ai_edge_litert")
    check_against_litert(*other_layer(kind, seed))


def other_layer(kind: str, seed: int) -> tuple[bytes, np.random.Generator, tuple[int, ...]]:
    """A file, what goes on drawing, and the shape of the file's input."""
    rng = np.random.default_rng(seed)
    w, size = Writer(), random_size(rng)
    parts, merged = random_parts(rng, norm=False), bool(rng.integers(2))
    activation = ("TANH", "RELU6", "NONE", "RELU")[seed]
    if kind == "lstm":
        single_lstm(w, rng, size, replace(parts, clips=(parts.clips[0], 0.0)))
    elif kind == "bidirectional_lstm":
        # With merged outputs, LiteRT writes hidden of a batch-major batch behind its tensor.
        size = replace(size, batch=size.batch if size.time_major or not merged else 1)
        bidirectional_lstm(w, rng, size, parts, merged=merged)
    elif kind == "rnn":
        single_rnn(w, rng, size, activation)
    elif kind == "sequence_rnn":
        float_rnn(w, rng, size, activation)
    elif kind == "svdf":
        shape = svdf(w, rng, activation=activation, bias=bool(rng.integers(2)))
        return w.pack(), rng, shape
    else:
        bidirectional_rnn(w, rng, size, merged=merged)
    single = kind in ("lstm", "rnn")
    return w.pack(), rng, (size.batch, size.inputs) if single else size.shape(size.inputs)


def check_against_litert(data: bytes, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    """Outputs of some calls, with a reset, within the tolerance of floats."""
    from ai_edge_litert import interpreter as litert

    calls = [[rng.standard_normal(shape).astype(np.float32)] for _ in range(CALLS)]
    kind = litert.OpResolverType.BUILTIN_REF
    interpreter = litert.Interpreter(model_content=data, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    (given,), outputs = interpreter.get_input_details(), interpreter.get_output_details()
    graph = import_model(data)
    ours = Interpreter(graph)
    for call, inputs in enumerate(calls):
        if call == 5:
            interpreter.reset_all_variables()
            ours.reset()
        interpreter.set_tensor(given["index"], inputs[0])
        interpreter.invoke()
        for mine, theirs in zip(ours.run(*inputs), outputs, strict=True):
            fault = oracle.difference(mine, interpreter.get_tensor(theirs["index"]))
            assert not fault, f"call {call}: {fault}"


def test_the_text_form_holds_all_of_a_cell() -> None:
    w, rng = Writer(), np.random.default_rng(0)
    integer_lstm(w, rng, Sequence())
    graph = import_model(w.pack())
    text = to_text(graph)
    assert to_text(parse(text)) == text
    assert [state.value.type.dtype.value for state in graph.state] == ["int8", "int16"]
    (node,) = graph.nodes
    assert str(node.inputs[1].type) == "int8[16,5]" and len(node.inputs[1].type.quant.scales) == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda operands: operands[:19], "must have 20 or 24 inputs; it has 19"),
        (lambda operands: replaced(operands, 0, -1), "input 0 is missing"),
        (lambda operands: replaced(operands, 12, -1), "its bias are missing"),
        (lambda operands: replaced(operands, 13, -1), "input 13 is missing"),
        (lambda operands: replaced(operands, 6, -1), "input 6 is missing"),
        (lambda operands: replaced(operands, 2, operands[6]), "must have one type and width"),
        (lambda operands: replaced(operands, 18, operands[0]), "lstm: the states must be hidden"),
        (lambda operands: replaced(operands, 18, operands[19]), "lstm: input, both weights, bias"),
        (
            lambda operands: replaced(operands, 9, operands[12]),
            "intermediate tensor 4 must have one scale; it has none",
        ),
        (
            lambda operands: replaced(operands, 16, operands[1]),
            "intermediate tensor 4 must have one scale; it has none",
        ),
        (
            lambda operands: replaced(operands, 1, -1),
            "intermediate tensor 4 must have one scale; it has none",
        ),
    ],
)
def test_malformed_operands_are_refused(
    change: Callable[[list[int]], list[int]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Writer.operator

    def operator(w: Writer, name: str, inputs: list[int], *args: Any, **fields: Any) -> None:
        add(w, name, change(inputs), *args, **fields)

    monkeypatch.setattr(Writer, "operator", operator)
    w = Writer()
    integer_lstm(w, np.random.default_rng(0), Sequence())
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(w.pack())


def test_dequantized_weights_become_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = Writer.tensor

    def weights(w: Writer, shape: tuple[int, ...], dtype: str, *args: Any, **fields: Any) -> int:
        if dtype != "f4" or len(shape) < 2 or "data" not in fields:
            return tensor(w, shape, dtype, *args, **fields)
        stored = tensor(w, shape, "i1", 0.01, data=np.clip(np.round(fields["data"] / 0.01), -127, 127))
        result = tensor(w, shape, "f4")
        w.operator("DEQUANTIZE", [stored], result)
        w.outputs.pop()
        return result

    monkeypatch.setattr(Writer, "tensor", weights)
    w = Writer()
    float_lstm(w, np.random.default_rng(0), Sequence())
    program = compile_graph(import_model(w.pack()), target.load("host"))
    assert [layer.kernel.name for layer in program.layers] == ["f32_lstm__c"]


def replaced(operands: list[int], index: int, value: int) -> list[int]:
    return [*operands[:index], value, *operands[index + 1 :]]


@pytest.mark.parametrize("name", make_recurrent.MODELS)
def test_models_are_those_that_are_made(name: str) -> None:
    seed = list(make_recurrent.MODELS).index(name)
    w = Writer()
    make_recurrent.MODELS[name](w, np.random.default_rng(seed))
    assert w.pack() == (make_recurrent.FOLDER / f"{name}.tflite").read_bytes()
