"""Variants that need less arena, where they cost little or nothing."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.selection import peak_relief
from microfold.options import Options
from microfold.program import Program
from tests.kernels import graphs

TARGET = target.load("cortex-m4")
GRAPHS = {
    "conv": graphs.conv2d_graph(12, 12, 16, 16, padding=((1, 1), (1, 1))),
    "pointwise": graphs.conv2d_graph(8, 8, 32, 32, kernel=(1, 1)),
    "depthwise": graphs.depthwise_conv2d_graph(16, 16, 16, padding=((1, 1), (1, 1))),
}


def _compiled(graph: Graph, price: float, monkeypatch: pytest.MonkeyPatch) -> Program:
    """With so many parts of time for a part of the arena, without a limit."""
    with monkeypatch.context() as patch:
        patch.setattr(peak_relief, "TIME_FOR_ARENA", price)
        patch.setattr(peak_relief, "MOST_TIME", price)
        patch.setattr(peak_relief, "FEWEST_BYTES", 0)
        return compile_graph(graph, TARGET)


def _lost(after: Program, before: Program) -> float:
    assert after.estimated_instructions and before.estimated_instructions
    return after.estimated_instructions / before.estimated_instructions - 1


@pytest.mark.parametrize("name", GRAPHS)
def test_the_price_decides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free = _compiled(GRAPHS[name], 0.0, monkeypatch)
    sizes = [free.arena.size]
    for price in (0.5, 100.0):
        after = _compiled(GRAPHS[name], price, monkeypatch)
        saved = 1 - after.arena.size / free.arena.size
        assert saved >= 0 and _lost(after, free) <= price * saved + 1e-4
        assert after.weight_bytes <= free.weight_bytes
        sizes.append(after.arena.size)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


def test_only_balanced_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a level, or of budgets, more was asked."""
    graph = GRAPHS["conv"]
    asked = [Options(optimize="speed"), Options(flash=1 << 20), Options(ram=1 << 20)]
    before = [compile_graph(graph, TARGET, options).arena.size for options in asked]
    monkeypatch.setattr(peak_relief, "TIME_FOR_ARENA", 100.0)
    monkeypatch.setattr(peak_relief, "MOST_TIME", 100.0)
    assert [compile_graph(graph, TARGET, options).arena.size for options in asked] == before


def test_few_bytes_are_worth_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    free = _compiled(GRAPHS["conv"], 0.0, monkeypatch)
    for name in ("TIME_FOR_ARENA", "MOST_TIME"):
        monkeypatch.setattr(peak_relief, name, 100.0)
    monkeypatch.setattr(peak_relief, "FEWEST_BYTES", 1 << 20)
    assert _lost(compile_graph(GRAPHS["conv"], TARGET), free) <= 0
