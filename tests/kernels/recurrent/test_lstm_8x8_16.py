"""LSTM cells of int8 with all that they may have: C against the reference, whose states go on."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from tests.frontend.operators.test_lstm_8x8_16 import COMBINATIONS, calls_of, draw_parts
from tests.kernels.choice import avoid, prefer
from tests.kernels.cores import assert_exact
from tests.kernels.portable import check
from tests.kernels.recurrent.test_lstm import together
from tests.needs import CROSS_TOOLS
from tests.recurrent_models import Parts, Quantization, Sequence, lstm_8x8_16
from tests.tflite_writer import Writer

SIZES = (
    Sequence(steps=3, inputs=7, units=9),
    Sequence(batch=2, steps=2, inputs=4, units=17, time_major=True),
    Sequence(batch=2, steps=2, inputs=17, units=6),
)
EVERY_PART = Parts(True, True, 5, True, (1.0, 0.5))


def cells(seed: int = 0, extreme: bool = False) -> Graph:
    """A graph of a cell of each combination, whose cells have any scale."""
    w, rng = Writer(), np.random.default_rng(seed)
    for k, combination in enumerate(COMBINATIONS[1:]):
        how = Quantization(2.0 ** -(9 + (k + seed) % 7), extreme=extreme)
        lstm_8x8_16(w, rng, SIZES[k % 3], draw_parts(rng, combination, 5 - k % 2), how)
    return import_model(w.pack())


def test_portable() -> None:
    check(cells())


def test_a_batch_whose_weights_meet_other_units() -> None:
    w, rng = Writer(), np.random.default_rng(3)
    lstm_8x8_16(w, rng, Sequence(3, 4, 5, 12, True), Parts(peephole=True, projection=7))
    lstm_8x8_16(w, rng, Sequence(2, 3, 5, 6, True), Parts(True, True, 4, True))
    check(import_model(w.pack()))


def test_extreme_weights() -> None:
    check(cells(1, extreme=True))


def test_projection_to_more_outputs_than_units() -> None:
    w = Writer()
    lstm_8x8_16(w, np.random.default_rng(0), Sequence(units=3), Parts(coupled=True, projection=11))
    check(import_model(w.pack()))


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
def test_portable_on_a_core() -> None:
    check(cells(2), "cortex-m0plus", runs=3)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("extreme", [False, True])
def test_dsp_instructions(extreme: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, "s8_lstm_8x8_16__dsp")
    program = compile_graph(cells(3, extreme), target.load("cortex-m4"))
    assert {layer.kernel.name for layer in program.layers} == {"s8_lstm_8x8_16__dsp"}
    packings = {dict(layer.call.function.spec)["packing"] for layer in program.layers}
    assert ("int16" in packings) is extreme
    assert_exact(program, 4)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
def test_helium(monkeypatch: pytest.MonkeyPatch) -> None:
    avoid(monkeypatch, lambda kernel: kernel.name == "s8_lstm_8x8_16__c")
    program = compile_graph(together(cells(4), cells(5, extreme=True)), target.load("cortex-m55"))
    for layer in program.layers:
        norm = len(layer.node.inputs) > 9
        assert layer.kernel.name == f"s8_lstm_8x8_16__{'dsp' if norm else 'mve_4'}"
    assert_exact(program, 3)


@pytest.mark.parametrize("operand", [3, 8])
def test_sums_that_may_leave_32_bits_are_refused(operand: int) -> None:
    """The reference's are undefined."""
    w, projected = Writer(), operand == 8
    lstm_8x8_16(
        w,
        np.random.default_rng(0),
        Sequence(inputs=3 + projected),
        Parts(coupled=True, projection=4 * projected),
    )
    graph = import_model(w.pack())
    bias = graph.nodes[0].inputs[operand]
    assert bias is not None
    huge = np.full(bias.type.shape, 2**31 - 9, np.int32)
    changed = graph.with_nodes(graph.nodes, constants={**graph.constants, bias: huge})
    with pytest.raises(UnsupportedModelError, match="accumulators might overflow"):
        compile_graph(changed, target.load("host"))


def test_init_begins_anew() -> None:
    w, rng = Writer(), np.random.default_rng(7)
    lstm_8x8_16(w, rng, SIZES[0], EVERY_PART)
    graph = import_model(w.pack())
    interpreter, session = Interpreter(graph), Session(compile_graph(graph, target.load("host")))
    calls = calls_of(rng, SIZES[0].shape(SIZES[0].inputs))[:3]
    for call in (*calls, None, *calls):
        if call is None:
            session.reset()
            interpreter.reset()
            continue
        np.testing.assert_array_equal(session.run(call)[0], interpreter.run(call)[0])
