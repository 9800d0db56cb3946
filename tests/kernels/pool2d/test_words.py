"""Pooling for cores without SIMD instructions, on the simulated cores, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.pool2d.words import MAX_COUNT
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from tests.kernels import graphs
from tests.kernels.thumb import CORES, check, measured


def _pool(
    kind: type[AveragePool2D | MaxPool2D],
    shape: tuple[int, ...],
    size: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = graphs.NO_PADDING,
    activation: Clip | None = None,
) -> Graph:
    return graphs.one_node_graph(
        kind(size, strides, padding), [graphs.int8_input("x", shape)], {}, activation
    )


def _cases(kind: type[AveragePool2D | MaxPool2D]) -> list[Graph]:
    return [
        _pool(kind, (1, 25, 5, 12), (25, 5)),
        _pool(kind, (1, 16, 16, 4), (16, 16)),
        _pool(kind, (2, 8, 7, 8), (2, 2), (2, 2)),
        _pool(kind, (2, 7, 6, 4), (3, 3), (2, 1), ((1, 1), (1, 2)), graphs.RELU6),
        _pool(kind, (1, 1, 9, 16), (1, 7), (1, 1), ((0, 0), (3, 3)), graphs.RELU),
    ]


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", CORES)
def test_equals_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = check([*_cases(AveragePool2D), *_cases(MaxPool2D)], core, monkeypatch)
    assert all(layer.kernel.name.endswith(f"{CORES[core]}_words") for layer in program.layers)


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", CORES)
def test_cost(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        _pool(kind, shape, size, strides)
        for kind in (AveragePool2D, MaxPool2D)
        for shape, size, strides in (
            ((1, 25, 5, 64), (25, 5), (1, 1)),
            ((1, 8, 8, 16), (2, 2), (2, 2)),
            ((1, 9, 9, 8), (3, 3), (1, 1)),
        )
    ]
    # Copies of functions for one layer take less than estimates of shared ones say.
    monkeypatch.setattr("microfold.lowering.lower._with_functions", lambda calls, *_: calls)
    for name, estimated, counted in measured(check(cases, core, monkeypatch)):
        assert estimated == pytest.approx(counted, rel=0.15), name


def test_means_are_exact() -> None:
    for count in range(1, MAX_COUNT + 1):
        sums = np.arange(-128 * count, 127 * count + 1)
        reciprocal = ((1 << 24) + count - 1) // count
        products = (np.abs(sums) + count // 2) * reciprocal
        assert products.max() < 1 << 32
        means = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
        assert np.array_equal(np.sign(sums) * (products >> 24), means)


@pytest.mark.parametrize(("shape", "size"), [((1, 20, 20, 4), (20, 20)), ((1, 4, 4, 6), (2, 2))])
def test_leaves_the_rest_to_other_kernels(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    program = compile_graph(_pool(AveragePool2D, shape, size), target.load("cortex-m3"))
    assert program.layers[0].kernel.name == "s8_average_pool2d__c"
