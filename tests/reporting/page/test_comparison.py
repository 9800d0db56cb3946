"""Two builds side by side."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from microfold.reporting.page.cards import cards, change
from microfold.reporting.page.comparison import BAR, compare
from tests.reporting.page.pages import DIGITS, report_of


def test_changes() -> None:
    assert change(None, 5) is None
    assert change(5, None) is None
    for ours, theirs, kind, text in (
        (90, 100, "less", "\N{MINUS SIGN}10.0 %"),
        (125, 100, "more", "+25.0 %"),
        (7, 7, "same", "="),
        (1500, 0, "more", "+1,500"),
    ):
        found = change(ours, theirs)
        assert found is not None and (found.kind, found.text) == (kind, text)


def test_levels_differ_where_kernels_do() -> None:
    balanced, size = report_of(DIGITS), report_of(DIGITS, optimize="size")
    found = compare(balanced, size, "size.json")
    assert found.title == "digits for cortex-m4, size"
    assert found.alike + len(found.layers) == len(balanced.layers)
    figures = {figure.name: figure for figure in found.figures}
    assert figures["RAM: arena"].ours == f"{balanced.ram.arena:,}"
    assert figures["RAM: arena"].theirs == f"{size.ram.arena:,}"
    assert "instructions, counted" not in figures
    changed = [layer for layer in found.layers if layer.kernels]
    assert changed
    kernels = {layer.name: layer.kernel for layer in balanced.layers}
    for layer in changed:
        assert layer.kernels is not None and layer.kernels[1] == kernels[layer.name]
    # The longest bar ends at an edge, and fewer instructions are to the left.
    assert max(layer.width for layer in found.layers) == pytest.approx(BAR)
    for layer in found.layers:
        assert layer.difference is not None
        assert layer.x + (layer.width if layer.difference < 0 else 0) == pytest.approx(BAR)


def test_layers_of_one_build_only() -> None:
    report = report_of(DIGITS)
    found = compare(
        replace(report, layers=report.layers[1:]), replace(report, layers=report.layers[:-1]), "x"
    )
    assert [(layer.name, layer.note) for layer in found.layers] == [
        (report.layers[-1].name, "only here"),
        (report.layers[0].name, "only there"),
    ]
    assert found.layers[1].difference == -(report.layers[0].estimated_instructions or 0)


def test_the_same_build() -> None:
    report = report_of(DIGITS)
    found = compare(report, report, "same.json")
    assert found.layers == [] and found.alike == len(report.layers)
    assert {figure.change.kind for figure in found.figures if figure.change} == {"same"}


def test_cards() -> None:
    report = report_of(DIGITS)
    ram, flash, run, model = cards(report, None)
    assert ram.total == f"{report.ram.arena:,}" and ram.change is None
    assert "proved to be minimal for these kernels" in ram.note
    larger = replace(report, ram=replace(report.ram, arena=report.ram.arena + 8))
    assert f"needs at least {report.ram.arena_bound:,} bytes" in cards(larger, None)[0].note
    assert flash.total == f"{report.flash.weights:,}" and "not measured" in flash.note
    assert run.total == f"{report.estimated_instructions:,}" and "Estimated by" in run.note
    assert model.total == str(len(report.layers))
    for card in (ram, flash):
        assert sum(part.width for part in card.parts) == pytest.approx(200, abs=0.1)
    counted = replace(report, instructions=95_000)
    assert cards(counted, None)[2].total == "95,000"
    other = cards(report, report_of(DIGITS, optimize="size"))
    assert all(card.change is not None for card in other)
