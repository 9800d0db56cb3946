"""Levels and budgets against each other."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.options import OPTIMIZE, Options
from microfold.program import Program
from microfold.report.tradeoffs import RAM_PARTS, tradeoffs
from microfold.report.what_if import pareto_front
from tests.cli.test_passes import CNN
from tests.command_line import refuse, succeed
from tests.kernels import graphs

GRAPH = graphs.conv2d_graph(6, 6, 8, 8, padding=((1, 1), (1, 1)))


def test_budgets_are_kept_and_lead_somewhere() -> None:
    def build(options: Options) -> Program:
        return compile_graph(GRAPH, target.load("cortex-m4"), options)

    found = list(tradeoffs(Options(), build))
    assert {t.optimize for t in found if (t.ram_budget, t.flash_budget) == (None, None)} == {*OPTIMIZE}
    for each in found:
        assert each.ram_budget is None or each.ram <= each.ram_budget
    assert any(each.flash_budget is not None for each in found)
    front = pareto_front(found)
    assert len({each.ram for each in front}) > 1
    for one, other in itertools.permutations(front, 2):
        figures = [(t.ram, t.flash, t.estimated_cycles or 0) for t in (one, other)]
        assert figures[0] == figures[1] or any(a < b for a, b in zip(*figures, strict=True))


def test_command() -> None:
    rows = json.loads(succeed("tradeoffs", CNN, "--json"))
    assert rows == sorted(rows, key=lambda row: (row["ram"], row["flash"]))
    assert rows[0]["ram"] < rows[-1]["ram"]


def test_the_least_ram_is_among_them() -> None:
    """Small steps follow where a large one leads to nothing."""

    def build(options: Options) -> Program:
        return compile_graph(GRAPH, target.load("cortex-m4"), options)

    found = list(tradeoffs(Options(), build))
    least = min(t.ram for t in found)
    with pytest.raises(InputError):
        build(Options(ram=least - max(least // RAM_PARTS[-1], 1), optimize="balanced"))


def test_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    data = json.loads(succeed("report", CNN, "-t", "cortex-m4", "--tradeoffs", "--json", "-o", str(page)))
    text = page.read_text()
    assert '<section id="tradeoffs">' in text
    assert 'aria-label="RAM, bytes against time"' in text
    assert "estimated cycles of one run" in text
    for each in data["tradeoffs"]:
        if each["ram_budget"] is not None:
            assert f"--optimize {each['optimize']} --ram {each['ram_budget']}" in text


def test_levels_and_budgets_are_its_own() -> None:
    assert "leave them away" in refuse("tradeoffs", CNN, "--ram", "9000")
