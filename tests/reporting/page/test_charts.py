"""The other drawings: scales, the graph, the strip of layers, headroom, pruning, profile, what if."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from microfold.reporting.page.graph_chart import GraphChart, graph_chart
from microfold.reporting.page.headroom_chart import headroom_chart
from microfold.reporting.page.layers import BAR, choices, cost_strip, costs, layer_table
from microfold.reporting.page.palette import COLOURS, Palette
from microfold.reporting.page.profile_chart import profile_chart
from microfold.reporting.page.pruning_strips import STRIP, certificates, spans
from microfold.reporting.page.scale import WIDTH, Linear, around, columns, round_number
from microfold.reporting.page.what_if_chart import what_if_section
from microfold.reporting.profile import DeviceProfile
from microfold.reporting.schema import BuildReport, ReportedCandidate
from tests.codegen.graphs import accumulator, two_inputs
from tests.reporting.page.graphs import inverted_residuals
from tests.reporting.page.pages import (
    ALTERNATIVES,
    CNN,
    DIGITS,
    MADE,
    ROOT,
    report_of,
    report_of_graph,
    uneven_profile,
)

SINE = ROOT / "examples" / "sine" / "sine.tflite"


# ---- scales ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 7, 42_000, 1 << 62])
def test_linear_scale(limit: int) -> None:
    scale = Linear(limit, 300, 20)
    assert scale(0) == 300
    assert scale(limit) == (20 if limit else 300)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 8 and ticks[0].text == "0"
    assert all(20 <= tick.at <= 300 for tick in ticks)


@pytest.mark.parametrize("values", [[0], [5], [90_000, 300_000], [1, 10**12]])
def test_logarithmic_scale(values: list[int]) -> None:
    scale = around(values, 10, 110)
    places = [scale(max(value, 1)) for value in values]
    assert places == sorted(places) and all(10 < place < 110 for place in places)
    assert all(10 <= tick.at <= 110 for tick in scale.ticks())


def test_round_numbers() -> None:
    assert [round_number(v) for v in (0.2, 1, 1.1, 3, 7, 10, 11, 4200)] == [1, 1, 2, 5, 10, 10, 20, 5000]


def test_columns() -> None:
    wide, narrow = columns(3, 50, 1000, 10, 100), columns(500, 50, 1000, 10, 100)
    assert [column.width for column in wide] == [100] * 3
    assert narrow[-1].x == 50 + 499 * 10
    assert [column.label for column in narrow[:4]] == ["0", "", "", "3"]


# ---- graph -------------------------------------------------------------------------------------------------


def draw_graph(report: BuildReport) -> GraphChart:
    chart = graph_chart(report, Palette(report.layers))
    assert chart is not None
    return chart


GRAPHS: dict[str, Callable[[], BuildReport]] = {
    "chain": lambda: report_of(DIGITS),
    "residuals": lambda: report_of_graph(inverted_residuals(6)),
    "states": lambda: report_of_graph(accumulator(), "host"),
    "inputs": lambda: report_of_graph(two_inputs(), "host"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_arcs_join_what_the_edges_do(name: str) -> None:
    report = GRAPHS[name]()
    chart = draw_graph(report)
    assert len(chart.arcs) == len(report.edges)
    places = {dot.x for dot in chart.dots}
    assert len(places) == len(chart.dots)
    assert [dot.layer for dot in chart.dots if dot.kind == "layer"] == [*range(len(report.layers))]
    for arc in chart.arcs:
        start, rx, ry, end = map(
            float, re.fullmatch(r"M(\S+) \S+A(\S+) (\S+) 0 0 1 (\S+) \S+", arc.path).groups()  # type: ignore[union-attr]
        )  # fmt: skip
        assert {start, end} <= places
        assert rx == pytest.approx(abs(end - start) / 2, abs=0.1)
        assert arc.back == (end < start)
        assert ry + arc.width / 2 < (chart.height - chart.line if arc.back else chart.line)
    assert [a.width for a in chart.arcs] == sorted((a.width for a in chart.arcs), reverse=True)


def test_arcs_are_as_thick_as_their_values() -> None:
    report = report_of(DIGITS)
    widths = {arc.tip.split("\n")[1]: arc.width for arc in draw_graph(report).arcs}
    assert len(widths) == len(report.edges)
    largest = max(edge.bytes for edge in report.edges)
    thick = max(widths.values())
    for edge in report.edges:
        ends = [
            f"{e.index} {report.layers[e.index].name}" if e.kind == "layer" else f"{e.kind} {e.index}"
            for e in (edge.source, edge.reader)
        ]
        assert widths[" to ".join(ends)] == pytest.approx(
            0.8 + (thick - 0.8) * edge.bytes / largest, abs=0.01
        )


def test_states_go_back_below_the_line() -> None:
    chart = draw_graph(report_of(MADE / "stream_int8.tflite"))
    assert any(arc.back for arc in chart.arcs)
    assert any(dot.kind == "state" for dot in chart.dots)


# ---- layers ------------------------------------------------------------------------------------------------


def test_the_strip_shows_all_instructions() -> None:
    report = report_of(DIGITS)
    segments = cost_strip(report, Palette(report.layers))
    assert sum(segment.width for segment in segments) == pytest.approx(WIDTH, abs=0.1)
    found = costs(report)
    for segment in segments:
        assert segment.width == pytest.approx(
            WIDTH * (found[segment.layer] or 0) / sum(c or 0 for c in found), abs=0.01
        )
    entries = Palette(report.layers).legend(found)
    assert sum(entry.share or 0 for entry in entries) == pytest.approx(100)
    assert sum(entry.layers for entry in entries) == len(report.layers)


def test_the_table_has_what_is_known() -> None:
    report = report_of(DIGITS)
    palette = Palette(report.layers)
    figures, rows = layer_table(report, palette, uneven_profile(report))
    titles = [figure.title for figure in figures]
    assert "instructions, counted" not in titles and "instructions, estimated" in titles
    ticks = titles.index("ticks, measured")
    assert [row.cells[ticks].text for row in rows][-1] == "\N{EN DASH}"
    for index in range(len(figures)):
        assert max(row.cells[index].bar for row in rows) == BAR
    assert [row.cells[0].value for row in rows] == [layer.macs for layer in report.layers]
    assert "ticks, measured" not in [figure.title for figure in layer_table(report, palette, None)[0]]


def test_choices_say_what_selection_says() -> None:
    report = report_of(DIGITS)
    for choice, layer in zip(choices(report, Palette(report.layers)), report.layers, strict=True):
        assert choice.considered[0].kernel == layer.kernel == choice.kernel
        assert [each.chosen for each in choice.considered] == [True] + [False] * (len(layer.candidates) - 1)
        assert choice.considered[0].times == "1.00"
        assert [reason for reason, _ in choice.refused] == [refusal.reason for refusal in layer.refused]


def test_a_choice_may_cost_more_than_another_kernel() -> None:
    layer = report_of(DIGITS).layers[0]
    cheaper = ReportedCandidate("cheaper", 1)
    report = replace(report_of(DIGITS), layers=(replace(layer, candidates=(*layer.candidates, cheaper)),))
    (choice,) = choices(report, Palette(report.layers))
    count = len(layer.candidates) + 1
    assert choice.verdict.startswith(f"best of {count} suitable kernels, including memory; ")
    assert [each.kernel for each in choice.considered[:2]] == [layer.kernel, "cheaper"]


def test_colours_are_for_the_most_frequent_operators() -> None:
    report = report_of(DIGITS)
    palette = Palette(report.layers)
    assert {palette.of(layer) for layer in report.layers} <= {f"op{i}" for i in range(COLOURS)} | {
        "op-others"
    }
    assert (
        palette.of(max(report.layers, key=lambda layer: [x.op for x in report.layers].count(layer.op)))
        == "op0"
    )


# ---- proofs ------------------------------------------------------------------------------------------------


def test_headroom() -> None:
    report = report_of(CNN)
    chart = headroom_chart(report, Palette(report.layers))
    assert chart is not None
    summed = {i: layer for i, layer in enumerate(report.layers) if layer.accumulator is not None}
    assert [bar.layer for bar in chart.bars] == [*summed]
    bit = (chart.bottom - chart.bars[0].top) / 32
    for bar in chart.bars:
        layer = summed[bar.layer]
        assert bar.height == pytest.approx((layer.accumulator_bits or 0) * bit, abs=0.2)
        assert bar.y + bar.height == pytest.approx(chart.bottom)
        assert f"{layer.accumulator_bits} of 32 bits" in bar.tip
    wide = report_of(MADE / "cnn_int16x8.tflite")
    chart = headroom_chart(wide, Palette(wide.layers))
    assert chart is not None and chart.ticks[-1].text == "64"
    floats = report_of(MADE / "cnn_f32.tflite")
    assert headroom_chart(floats, Palette(floats.layers)) is None


def test_strips_of_channels_show_the_proof() -> None:
    report = report_of(SINE)
    (certificate,) = certificates(report)
    (pruned,) = report.pruned
    assert certificate.channels == sum(strip.removed for strip in certificate.strips)
    for strip, value in zip(certificate.strips, pruned.values, strict=True):
        unit = STRIP / value.channels
        shown = {
            round((run.x + unit * (i + 0.5)) // unit)
            for run in strip.runs
            for i in range(round(run.width / unit))
        }
        assert shown == {channel for removed in value.removed for channel in removed.channels}
    assert certificates(report_of(CNN)) == []


def test_spans() -> None:
    assert spans((7, 1, 2, 3, 9, 10)) == "1-3, 7, 9-10"
    assert spans(()) == ""


# ---- profile and what if -----------------------------------------------------------------------------------


def test_a_profile_is_drawn_beside_the_estimate() -> None:
    report = report_of(DIGITS)
    chart = profile_chart(report, uneven_profile(report))
    assert chart is not None
    assert chart.missing == 1 and len(chart.pairs) == len(report.layers) - 1
    assert {pair.layer % 3 == 0 for pair in chart.pairs if pair.kind == "slow"} == {True}
    assert chart.slow[0][0] in {layer.name for layer in report.layers[::3]}
    heights = [sum(getattr(p, name) for p in chart.pairs) for name in ("estimated_height", "measured_height")]
    assert heights[0] == pytest.approx(heights[1], rel=0.02), "both are all of the time"
    assert all(p.measured_y + p.measured_height <= chart.bottom + 0.1 for p in chart.pairs)


def test_a_profile_without_ticks_is_not_drawn() -> None:
    report = report_of(DIGITS)
    assert profile_chart(report, DeviceProfile("zero.json", {0: 0, 1: 0})) is None


def test_what_if() -> None:
    section = what_if_section(ALTERNATIVES, ("cortex-m4", "balanced"))
    assert [len(chart.points) for chart in section.charts] == [5, 5]
    for chart in section.charts:
        assert all(chart.left < p.x < chart.right and chart.top < p.y <= chart.bottom for p in chart.points)
        assert [p.shape for p in chart.points if p.current] == ["balanced"]
        assert [p.front for p in chart.points] == [True, True, True, True, False]
    assert [row.problem for row in section.rows] == [None] * 5 + ["no kernel computes it"]
    assert [row.front_of_all for row in section.rows] == [True, True, True, False, False, False]
    assert [row.current for row in section.rows].index(True) == 1
    assert not any(row.current for row in what_if_section(ALTERNATIVES, None).rows)


def test_what_if_nothing_can_be_compiled() -> None:
    section = what_if_section(ALTERNATIVES[-1:], ("cortex-m4", "speed"))
    assert section.charts == [] and len(section.rows) == 1


def test_alike_cores_are_one_point() -> None:
    twins = [
        *ALTERNATIVES[:3],
        *(replace(a, target="cortex-m7") for a in ALTERNATIVES[:3]),
    ]
    section = what_if_section(twins, ("cortex-m7", "size"))
    for chart in section.charts:
        assert len(chart.points) == 3
        assert all("cortex-m4" in p.tip and "cortex-m7" in p.tip for p in chart.points)
        assert [p.colour for p in chart.points if p.current] == ["op1"]
