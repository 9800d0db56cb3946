"""Convolution for cores without SIMD instructions, on the simulated cores, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.types import DType
from tests.kernels import graphs
from tests.kernels.conv2d.test_dsp import CASES, SAME3, WIDE_OUT
from tests.kernels.thumb import CORES, check, measured
from tests.sampling import sampled

GRAPHS = [
    *(graphs.conv2d_graph(*arguments, **options) for arguments, options, _ in CASES.values()),
    # Weights of usual models are small, and runs long.
    graphs.conv2d_graph(7, 6, 12, 5, padding=((1, 0), (0, 1)), largest=30, out=graphs.int8_element(0.02, 4)),
    graphs.conv2d_graph(7, 6, 7, 6, kernel=(1, 1), largest=12, batch=2),
    graphs.conv2d_graph(5, 6, 3, 6, kernel=(2, 3), padding=SAME3, largest=40, activation=graphs.RELU),
    graphs.conv2d_graph(5, 5, 150, 3, largest=60, kernel=(1, 1)),
]


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", CORES)
def test_equals_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = check(GRAPHS, core, monkeypatch)
    specs = [dict(layer.call.function.spec) for layer in program.layers]
    assert {spec["run"] for spec in specs} >= {2, 3, 5}
    assert {spec["gather"] for spec in specs} >= {"", "taps"}
    assert {spec["rests"] for spec in specs} == {False, True}
    if core == "cortex-m0plus":
        forms = {spec["requantize"] for spec in specs}
        assert forms >= {"narrow_24", "narrow_24_signed", "narrow_30_signed", "general"}
        assert "rows" in {spec["gather"] for spec in specs}


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(CORES, 2))
def test_without_assembly(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(GRAPHS[::3], core, monkeypatch, assembly=False)


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", sampled(CORES, 2))
def test_cost(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(12, 12, 8, 16), (12, 12, 16, 8), (6, 6, 64, 64)]
    cases = [graphs.conv2d_graph(*size, padding=SAME3, largest=60) for size in sizes]
    cases += [graphs.conv2d_graph(*size, kernel=(1, 1), largest=60) for size in sizes]
    for name, estimated, counted in measured(check(cases, core, monkeypatch)):
        assert estimated == pytest.approx(counted, rel=0.2), name


@pytest.mark.parametrize("core", CORES)
def test_weights_stay_small(core: str) -> None:
    graph = graphs.conv2d_graph(8, 8, 24, 32, padding=SAME3, largest=60)
    program = compile_graph(graph, target.load(core))
    assert CORES[core] in program.layers[0].kernel.name
    original = sum(array.nbytes for value, array in graph.constants.items() if value.type.dtype is DType.INT8)
    constants = program.layers[0].call.constants
    packed = sum(c.array.nbytes for name, c in constants.items() if name != "channels")
    assert packed <= 1.25 * original


def test_large_patches_are_declined() -> None:
    graph = graphs.conv2d_graph(6, 6, 300, 4, out=WIDE_OUT)
    program = compile_graph(graph, target.load("cortex-m3"))
    assert program.layers[0].kernel.name == "s8_conv2d__c_2x2"
    assert np.prod(program.layers[0].node.inputs[0].type.shape) > 8192  # type: ignore[union-attr]
