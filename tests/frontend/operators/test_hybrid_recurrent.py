"""Hybrid recurrent operators against LiteRT, call by call from its states."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from microfold.simulate.program import simulator
from microfold.verification.verify import verify
from tests import oracle
from tests import recurrent_models as recurrent
from tests.frontend.operators.test_recurrent import random_parts, random_size
from tests.hybrid_models import HybridWriter, svdf
from tests.needs import CROSS_TOOLS, need_modules
from tests.recurrent_models import Parts, Sequence
from tests.sampling import sampled, sampled_rows

CALLS = 6
# Of the largest magnitude. Another last place of a tanh may move an activation of the next step by a step.
FLIP = 2.0**-7

Shape = tuple[int, ...]
Drawing = Callable[[HybridWriter, np.random.Generator], Shape]


def _sequence(rng: np.random.Generator) -> Sequence:
    return replace(random_size(rng), units=int(rng.integers(2, 16)))


def _plain_lstm(w: HybridWriter, rng: np.random.Generator) -> Shape:
    size = _sequence(rng)
    recurrent.float_lstm(w, rng, size, Parts())
    return size.shape(size.inputs)


def _any_lstm(w: HybridWriter, rng: np.random.Generator) -> Shape:
    size = _sequence(rng)
    recurrent.float_lstm(w, rng, size, random_parts(rng, norm=True))
    return size.shape(size.inputs)


def _single_lstm(w: HybridWriter, rng: np.random.Generator) -> Shape:
    size = _sequence(rng)
    recurrent.single_lstm(w, rng, size)
    return size.batch, size.inputs


def _rnn(activation: str) -> Drawing:
    def draw(w: HybridWriter, rng: np.random.Generator) -> Shape:
        size = _sequence(rng)
        recurrent.float_rnn(w, rng, size, activation)
        return size.shape(size.inputs)

    return draw


def _single_rnn(w: HybridWriter, rng: np.random.Generator) -> Shape:
    size = _sequence(rng)
    recurrent.single_rnn(w, rng, size, "RELU")
    return size.batch, size.inputs


LAYERS: dict[str, Drawing] = {
    "lstm": _plain_lstm,
    "lstm of any parts": _any_lstm,
    "lstm of one step": _single_lstm,
    "rnn, tanh": _rnn("TANH"),
    "rnn, relu6": _rnn("RELU6"),
    "rnn of one step": _single_rnn,
    "svdf": lambda w, rng: svdf(w, rng, activation="RELU", bias=bool(rng.integers(2))),
}
EXACT = ("rnn, relu6", "rnn of one step")


def draw_layer(kind: str, rng: np.random.Generator, asymmetric: bool) -> tuple[bytes, Shape]:
    """A file of a layer, and the shape of its input."""
    w = HybridWriter(asymmetric=asymmetric)
    shape = LAYERS[kind](w, rng)
    return w.pack(), shape


def faults(kind: str, seed: int, asymmetric: bool) -> list[float]:
    """The largest difference in each call, as a part of the largest magnitude."""
    need_modules("ai_edge_litert")
    rng = np.random.default_rng(seed)
    data, shape = draw_layer(kind, rng, asymmetric)
    calls = [[rng.standard_normal(shape).astype(np.float32) * (i != 2)] for i in range(CALLS)]
    (index,) = oracle.operator_outputs(data)
    theirs = oracle.litert(data, calls, [index])
    interpreter = Interpreter(import_model(data))
    found = []
    for call, result in zip(calls, theirs, strict=True):
        ours = interpreter.run(*call)[0]
        largest = np.abs(result[index]).max(initial=1e-30)
        found.append(float(np.abs(ours - result[index].reshape(ours.shape)).max() / largest))
    return found


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_are_those_of_litert(kind: str, asymmetric: bool) -> None:
    found = [fault for seed in range(4) for fault in faults(kind, seed, asymmetric)]
    assert max(found) <= (1e-6 if kind in EXACT else FLIP)
    # Most calls have no tie that a last place decides.
    assert np.median(found) <= 1e-5


@pytest.mark.exhaustive
@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_many_layers_are_those_of_litert(kind: str, asymmetric: bool) -> None:
    found = np.array([fault for seed in range(100) for fault in faults(kind, seed, asymmetric)])
    assert (found > 1e-5).mean() < 0.05, found.max()


def check_c(kind: str, core: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = HybridWriter(asymmetric=bool(seed % 2))
    shape = LAYERS[kind](w, rng)
    program = compile_graph(import_model(w.pack()), target.load(core))
    result = verify(program, [[rng.standard_normal(shape).astype(np.float32)] for _ in range(4)])
    assert result.exact, result.differences


@pytest.mark.parametrize("kind", LAYERS)
def test_c_on_the_host(kind: str) -> None:
    check_c(kind, "host", 1)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize(
    ("kind", "core"), sampled_rows(itertools.product(LAYERS, ["cortex-m0plus", "cortex-m4", "cortex-m55"]), 2)
)
def test_c_on_a_simulated_core(kind: str, core: str) -> None:
    check_c(kind, core, 2)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m55"]))
def test_vectors_have_the_bits_of_portable_products(core: str) -> None:
    """Sums of integers are exact, and what is made of them is the same code."""
    loaded, rng = target.load(core), np.random.default_rng(8)
    w = HybridWriter(asymmetric=True)
    size = Sequence(batch=2, steps=5, inputs=11, units=14)
    recurrent.float_lstm(w, rng, size, Parts(peephole=True, projection=7))
    recurrent.float_rnn(w, rng, size)
    graph = import_model(w.pack())
    calls = [
        [rng.standard_normal(size.shape(size.inputs)).astype(np.float32) for _ in graph.inputs]
        for _ in range(3)
    ]
    results = []
    for dropped in ({"dsp", "mve"}, set[str]()):
        program = compile_graph(graph, replace(loaded, features=loaded.features - dropped))
        variants = {layer.kernel.name.split("__")[1][:3] for layer in program.layers}
        assert variants == ({"c", "c_4"} if dropped else {"dsp"} if core == "cortex-m4" else {"mve"})
        with simulator(program) as machine:
            results.append(machine.run(calls).outputs)
    for portable, vectors in zip(*results, strict=True):
        for mine, theirs in zip(portable, vectors, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_gates_of_different_types_are_refused() -> None:
    w = HybridWriter(asymmetric=False)
    weights = w.tensor((4, 5), "i1", 0.1, data=np.ones((4, 5)))
    floats = super(HybridWriter, w).tensor((4, 4), "f4", data=np.ones((4, 4)))
    bias = w.tensor((4,), "f4", data=np.zeros(4))
    x, hidden = w.input((1, 3, 5), "f4"), w.tensor((1, 4), "f4", variable=True)
    y = w.tensor((1, 3, 4), "f4")
    w.operator("UNIDIRECTIONAL_SEQUENCE_RNN", [x, weights, floats, bias, hidden], y, "SequenceRNNOptions")
    with pytest.raises(UnsupportedModelError, match="recurrent weights must be int8"):
        import_model(w.pack())
