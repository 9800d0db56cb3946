"""Depthwise convolution for cores without SIMD instructions, on the simulated cores, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.kernels.depthwise_conv2d.packed_two_per_word import TAPS, pack_tap_runs, tap_runs
from microfold.kernels.packing.two_pixels_per_word import runs_fit
from microfold.ops.window import Window
from tests.kernels import graphs
from tests.kernels.depthwise_conv2d.test_dsp import CASES, FEW_OUTPUTS, SAME3
from tests.kernels.thumb import CORES, check, measured
from tests.sampling import sampled

GRAPHS = [
    *(
        graphs.depthwise_conv2d_graph(*arguments, seed=len(name), **options)
        for name, (arguments, options) in (CASES | FEW_OUTPUTS).items()
        if name != "more than 128 taps"
    ),
    graphs.depthwise_conv2d_graph(7, 5, 6, padding=SAME3, largest=30, activation=graphs.RELU),
    graphs.depthwise_conv2d_graph(5, 6, 4, padding=((1, 0), (0, 1)), largest=1),
]


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", CORES)
def test_equals_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(GRAPHS, core, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(CORES, 2))
def test_without_assembly(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(GRAPHS[::3], core, monkeypatch, assembly=False)


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", sampled(CORES, 2))
def test_cost(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        graphs.depthwise_conv2d_graph(16, 16, 8, padding=SAME3),
        graphs.depthwise_conv2d_graph(16, 16, 8, padding=SAME3, strides=(2, 2)),
        graphs.depthwise_conv2d_graph(9, 9, 8, kernel=(5, 5)),
    ]
    for name, estimated, counted in measured(check(cases, core, monkeypatch)):
        assert estimated == pytest.approx(counted, rel=0.2), name


def test_runs_of_taps() -> None:
    window = Window((2, 5), (1, 1), (1, 1), ((0, 0), (0, 0)))
    expected = [(0, (0, 1, 2)), (3, (3, 4)), (10, (5, 6, 7)), (13, (8, 9))]
    assert tap_runs(window, 10) == expected
    dilated = Window((1, 2), (1, 1), (1, 3), ((0, 0), (0, 0)))
    assert tap_runs(dilated, 10) == [(0, (0,)), (3, (1,))]


def test_runs_that_do_not_fit_are_taken_in_parts() -> None:
    matrix = np.array([[127, 127, 127, 1], [-128, -128, -128, 0], [0, 0, 0, 0]], np.int8)
    packed, counts = pack_tap_runs(matrix, [(0, 1, 2), (3,)])
    assert counts.tolist() == [3, 2, 1]
    assert runs_fit(packed[:, 1:], TAPS, TAPS)
    ends = np.cumsum(counts)
    for weights, rows in zip(matrix, np.split(packed.astype(int), ends[:-1]), strict=True):
        sums = np.zeros((2, TAPS), int)
        np.add.at(sums, rows[:, 0], rows[:, 1:])
        assert [*sums[0], sums[1, 0]] == weights.tolist()
