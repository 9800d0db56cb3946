"""The front of RAM, flash and time."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from microfold import target
from microfold.errors import InputError
from microfold.kernels.selection.objective import Limits, Objective
from microfold.kernels.selection.selector import Selector
from microfold.options import Options
from microfold.reporting.tradeoffs import tradeoffs
from tests.cli.test_passes import CNN
from tests.command_line import refuse, succeed
from tests.kernels import graphs
from tests.lowering.figures import figures_of_build

GRAPH = graphs.conv2d_graph(6, 6, 8, 8, padding=((1, 1), (1, 1)))
M4 = target.load("cortex-m4")


def test_the_options_lead_to_what_is_listed_and_nothing_beats_it() -> None:
    front = tradeoffs(GRAPH, M4, Options())
    assert len({each.ram for each in front}) > 1
    assert len({each.flash for each in front}) > 1
    for one, other in itertools.permutations(front, 2):
        figures = [(t.ram, t.flash, t.estimated_cycles or 0) for t in (one, other)]
        assert any(a < b for a, b in zip(*figures, strict=True))
    for each in front:
        options = Options(
            optimize=each.optimize,
            objective="cycles=1",
            rows="never",
            ram=each.ram_budget,
            flash=each.flash_budget,
        )
        built = figures_of_build(GRAPH, M4, options)
        assert (built.arena, built.flash) == (each.ram, each.flash)
        assert round(built.cycles) == each.estimated_cycles


def test_the_least_ram_is_among_them() -> None:
    least = min(each.ram for each in tradeoffs(GRAPH, M4, Options()))
    with pytest.raises(InputError):
        _ = figures_of_build(GRAPH, M4, Options(ram=least - 8, rows="never"))


def test_command() -> None:
    rows = json.loads(succeed("tradeoffs", CNN, "--json"))
    assert rows == sorted(rows, key=lambda row: (row["ram"], row["flash"]))
    assert rows[0]["ram"] < rows[-1]["ram"]


def test_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    data = json.loads(succeed("report", CNN, "-t", "cortex-m4", "--tradeoffs", "--json", "-o", str(page)))
    text = page.read_text()
    assert '<section id="tradeoffs">' in text
    assert 'aria-label="RAM, bytes against time"' in text
    assert "estimated cycles of one run" in text
    for each in data["tradeoffs"]:
        assert f"--ram {each['ram_budget']} --flash {each['flash_budget']}" in text


def test_levels_and_budgets_are_its_own() -> None:
    assert "remove them" in refuse("tradeoffs", CNN, "--ram", "9000")


def test_selections_without_a_ram_limit_are_not_repeated_for_each_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another order of the calls suits the kernels without the limit: they are the same for all limits."""
    asked: Counter[object] = Counter()
    best = Selector.best

    def counted(self: Selector, objective: Objective, limits: Limits, *more: Any, **rest: Any) -> Any:
        if math.isinf(limits.arena):
            asked[self, objective, limits] += 1
        return best(self, objective, limits, *more, **rest)

    monkeypatch.setattr(Selector, "best", counted)
    assert len({each.ram for each in tradeoffs(GRAPH, M4, Options())}) > 2
    assert max(asked.values()) <= 2  # for the question without a limit, and for the order
