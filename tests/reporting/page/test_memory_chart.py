"""The drawing of the arena: what is where, and how large."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold.reporting.page.memory_chart import MemoryChart, bytes_in_use, memory_chart
from microfold.reporting.page.palette import Palette
from microfold.reporting.page.scale import WIDTH
from microfold.reporting.schema import BuildReport
from tests.reporting.page.graphs import inverted_residuals
from tests.reporting.page.pages import CNN, DIGITS, MADE, report_of, report_of_graph


def draw(report: BuildReport) -> MemoryChart:
    chart = memory_chart(report, Palette(report.layers))
    assert chart is not None
    return chart


@pytest.mark.parametrize("path", [CNN, DIGITS, MADE / "stream_int8.tflite"], ids=lambda path: path.stem)
def test_blocks_are_where_they_are_in_the_arena(path: Path) -> None:
    report = report_of(path)
    chart = draw(report)
    assert len(chart.blocks) == len(report.blocks)
    pixels = (chart.bottom - chart.top) / report.ram.arena
    for block, shape in zip(report.blocks, chart.blocks, strict=True):
        assert shape.x == chart.columns[block.first_layer].x
        layers = block.last_layer - block.first_layer + 1
        assert shape.width == pytest.approx(layers * chart.columns[0].width, abs=0.1 * layers)
        assert shape.y + shape.height == pytest.approx(chart.bottom - block.offset * pixels, abs=0.6)
        assert shape.y == pytest.approx(chart.bottom - block.end * pixels, abs=0.2)
        assert chart.left <= shape.x and shape.x + shape.width <= chart.right + 0.2
        assert f"{block.bytes:,} bytes at {block.offset:,}" in shape.tip
        assert len(shape.layers.split()) == layers


def test_shared_bytes_are_those_of_two_blocks() -> None:
    report = report_of(DIGITS)
    expected = {
        max(a.first_layer, b.first_layer)
        for a, b in combinations(report.blocks, 2)
        if max(a.first_layer, b.first_layer) <= min(a.last_layer, b.last_layer)
        and max(a.offset, b.offset) < min(a.end, b.end)
    }
    chart = draw(report)
    assert expected
    assert {round((s.x - chart.left) / chart.columns[0].width) for s in chart.shared} == expected
    for shared in chart.shared:
        around = [
            b
            for b in chart.blocks
            if b.x <= shared.x and shared.x + shared.width <= b.x + b.width + 0.2
            and b.y <= shared.y + 0.2 and shared.y + shared.height <= b.y + b.height + 0.6
        ]  # fmt: skip
        assert len(around) >= 2


def test_levels_and_peak() -> None:
    report = report_of(DIGITS)
    chart = draw(report)
    (arena,) = chart.levels
    assert report.ram.arena == report.ram.arena_bound
    assert arena.y == chart.top and arena.kind == "arena"
    assert f"{report.ram.arena:,} bytes, proved minimal" in arena.text
    larger = replace(report, ram=replace(report.ram, arena=report.ram.arena + 400))
    bound, arena = draw(larger).levels
    assert (bound.kind, arena.kind) == ("bound", "arena")
    assert arena.y < bound.y
    assert f"{larger.ram.arena:,}" in arena.text and f"{larger.ram.arena_bound:,}" in bound.text
    # Their texts are on different sides: they do not run into each other.
    assert bound.text_y > bound.y and arena.y > arena.text_y
    used = bytes_in_use(report)
    assert max(used) <= report.ram.arena
    assert chart.peak.layers == tuple(i for i, each in enumerate(used) if each == max(used))
    assert chart.columns[chart.peak.layers[0]].middle == chart.peak.x


def test_bytes_in_use_count_shared_ones_once() -> None:
    report = report_of(CNN)
    for layer, used in enumerate(bytes_in_use(report)):
        alive = [b for b in report.blocks if b.first_layer <= layer <= b.last_layer]
        assert used == len({byte for b in alive for byte in range(b.offset, b.end)})


def test_many_layers_are_wider_than_the_page_and_labels_keep_apart() -> None:
    report = report_of_graph(inverted_residuals(24, 24))
    assert len(report.layers) > 80
    chart = draw(report)
    assert chart.width > WIDTH
    assert 20 < sum(bool(column.label) for column in chart.columns) <= len(report.layers) / 2 + 1
    labels = [shape.label for shape in chart.blocks if shape.label is not None]
    assert labels
    assert not any(a.collides(b) for a, b in combinations(labels, 2))


def test_one_layer_is_not_as_wide_as_the_page() -> None:
    report = report_of(MADE / "ops" / "softmax_int8.tflite")
    chart = draw(report)
    assert len(chart.columns) == 1
    assert chart.right < WIDTH / 3 < chart.width < WIDTH
