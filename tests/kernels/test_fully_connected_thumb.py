"""Fully connected layers for cores without SIMD instructions, on the simulated cores, bit for bit."""

from __future__ import annotations

import pytest

from tests.kernels import graphs
from tests.kernels.test_fully_connected_dsp import CASES
from tests.kernels.thumb import CORES, check, measured

GRAPHS = [
    *(graphs.fully_connected_graph(*arguments, **options) for arguments, options, _ in CASES.values()),
    *(graphs.fully_connected_graph(9 + units, units, seed=units) for units in (1, 2, 4, 5, 6, 7, 16)),
    graphs.fully_connected_graph(3, 8, batch=2),
    graphs.fully_connected_graph(16, 10, largest=20),
]


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("assembly", [True, False])
def test_equals_reference(core: str, assembly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    check(GRAPHS if assembly else GRAPHS[::2], core, monkeypatch, assembly=assembly)


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
def test_cost(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [graphs.fully_connected_graph(*size) for size in ((128, 64), (640, 8), (64, 12))]
    for name, estimated, counted in measured(check(cases, core, monkeypatch)):
        assert estimated == pytest.approx(counted, rel=0.2), name
