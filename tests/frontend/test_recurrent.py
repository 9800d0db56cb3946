"""Recurrent operators against the oracles' wheels, over many calls with a reset, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from microfold.frontend.tflite import import_model
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.parse import parse
from microfold.ir.text import to_text
from tests import oracle
from tests.needs import need_modules
from tests.recurrent_models import Sequence, float_lstm, integer_lstm
from tests.tflite_writer import Writer

CALLS = 8


def random_size(rng: np.random.Generator) -> Sequence:
    batch, steps, inputs, units = (int(rng.integers(1, high)) for high in (4, 7, 24, 20))
    return Sequence(batch, steps, inputs, units, bool(rng.integers(2)))


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
    parts = rng.integers(0, 2, 4).astype(bool).tolist() if seed else [False] * 4
    coupled, peephole, projected, norm = parts
    projection, clips = int(rng.integers(1, 9)) * projected, (float(rng.choice([0.0, 1.0])), 0.5 * projected)
    float_lstm(
        w, rng, size, coupled=coupled, peephole=peephole, projection=projection, norm=norm, clips=clips
    )
    check_against_litert(w.pack(), rng, size)


def check_against_litert(data: bytes, rng: np.random.Generator, size: Sequence) -> None:
    """Outputs of some calls, with a reset, within the tolerance of floats."""
    from ai_edge_litert import interpreter as litert

    calls = [[rng.standard_normal(size.shape(size.inputs)).astype(np.float32)] for _ in range(CALLS)]
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
