"""LSTM cells: C against the reference, over several calls, whose states go on."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.frontend.tflite import import_model
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from tests.kernels.choice import prefer
from tests.kernels.cores import assert_exact
from tests.kernels.portable import check
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS
from tests.recurrent_models import Parts, Sequence, float_lstm, inputs_of, integer_lstm
from tests.tflite_writer import Writer

SIZES = (
    Sequence(batch=2, steps=4, inputs=8, units=3, time_major=True),
    Sequence(batch=3, steps=2, inputs=1, units=1),
    Sequence(steps=5, inputs=7, units=10),
)

FLOAT_CELLS = (
    Parts(),
    Parts(coupled=True, clips=(0.5, 0.0)),
    Parts(peephole=True),
    Parts(projection=6, clips=(0.0, 0.8)),
    Parts(norm=True),
    Parts(norm=True, coupled=True, peephole=True, projection=2),
    Parts(peephole=True, coupled=True, projection=3, clips=(1.0, 0.0)),
)


def float_cells() -> Graph:
    """A graph of cells with each of the parts that they may have."""
    w, rng = Writer(), np.random.default_rng(2)
    for size, parts in zip((*SIZES, *SIZES, SIZES[0]), FLOAT_CELLS, strict=True):
        float_lstm(w, rng, size, parts)
    return import_model(w.pack())


def forgetful_cells(dtype: str) -> Graph:
    """Cells whose gate f is one half of every cell: odd ones are ties."""
    graph = cells(dtype)
    constants = dict(graph.constants)
    for node in graph.nodes:
        for value in node.operands[1:4]:
            rows = np.array(constants[value])
            units = len(rows) // 4
            rows[units : 2 * units] = 0
            constants[value] = rows
    return graph.with_nodes(graph.nodes, constants=constants)


def together(*graphs: Graph) -> Graph:
    """One graph of all of them."""
    return replace(merge(list(graphs)), state=tuple(state for graph in graphs for state in graph.state))


def cells(dtype: str, seed: int = 0, extreme: bool = False, huge: int = 0) -> Graph:
    """A graph of several cells, some of which clip, and whose cell states have various scales.

    Args:
        extreme: weights are; see `integer_lstm`.
        huge: a bias of each gate; 0: as drawn.
    """
    w, rng = Writer(), np.random.default_rng(seed)
    for k, size in enumerate(SIZES):
        scale = (2.0**-11, 2.0**-15, 0.0007)[k]
        integer_lstm(w, rng, size, dtype, clip=1.0 if k % 2 else 0.0, cell_scale=scale, extreme=extreme)
    graph = import_model(w.pack())
    if not huge:
        return graph
    biases = {node.operands[3] for node in graph.nodes}
    changed = {
        bias: np.where(np.arange(bias.type.size) % 3, graph.constants[bias], huge).astype(
            bias.type.dtype.numpy
        )
        for bias in biases
    }
    return graph.with_nodes(graph.nodes, constants={**graph.constants, **changed})


@pytest.mark.parametrize("dtype", ["i1", "i2"])
def test_portable_integers(dtype: str) -> None:
    check(together(cells(dtype), forgetful_cells(dtype)))


def test_floats_with_all_that_cells_have() -> None:
    check(float_cells())


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
def test_portable_on_cores() -> None:
    check(together(cells("i1"), cells("i2")), "cortex-m0plus", runs=3)
    assert_exact(compile_graph(float_cells(), target.load("cortex-m4")), 3)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
def test_dsp_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, "s8_lstm__dsp_4", "s16_lstm__dsp_4")
    extreme, huge = cells("i1", extreme=True), cells("i2", huge=2**40)
    graph = together(forgetful_cells("i1"), extreme, forgetful_cells("i2"), huge)
    program = compile_graph(graph, target.load("cortex-m4"))
    chosen = {layer.kernel.name for layer in program.layers}
    assert chosen == {"s8_lstm__dsp_4", "s16_lstm__dsp_4"}
    choices = [dict(layer.call.function.spec) for layer in program.layers]
    assert {choice["packing"] for choice in choices if "packing" in choice} == {"paired", "int16"}
    assert {choice["requantize"] for choice in choices if choice["products"] == "dsp_s16"} == {"once", "wide"}
    assert_exact(program, 6)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
def test_helium() -> None:
    graph = together(
        forgetful_cells("i1"), cells("i1", extreme=True), forgetful_cells("i2"), cells("i2", extreme=True)
    )
    program = compile_graph(graph, target.load("cortex-m55"))
    # A cell of one unit leaves Helium's lanes empty.
    chosen = {layer.kernel.name for layer in program.layers if layer.outputs[0].type.shape[2] > 1}
    assert chosen == {"s8_lstm__mve_4", "s16_lstm__mve_4"}
    assert_exact(program, 6)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
def test_int16_sums_of_64_bits_are_left_to_dsp_instructions() -> None:
    program = compile_graph(cells("i2", huge=2**40), target.load("cortex-m55"))
    assert {layer.kernel.name for layer in program.layers} == {"s16_lstm__dsp_4"}
    assert_exact(program, 3)


def test_sums_that_leave_32_bits_wrap_round() -> None:
    program = compile_graph(cells("i1", huge=2**31 - 9), target.load("host"))
    assert dict(program.layers[0].call.function.spec)["requantize"] == "wrapped"
    assert_exact(program, 6)


def test_init_begins_anew() -> None:
    graph = cells("i1", 7)
    program = compile_graph(graph, target.load("host"))
    rng = np.random.default_rng(1)
    calls = [inputs_of(rng, [v.type.shape for v in graph.inputs], "i1") for _ in range(3)]
    interpreter, session = Interpreter(graph), Session(program)
    for call in (*calls, None, *calls):
        if call is None:
            session.reset()
            interpreter.reset()
            continue
        for mine, theirs in zip(session.run(*call), interpreter.run(*call), strict=True):
            np.testing.assert_array_equal(mine, theirs)
