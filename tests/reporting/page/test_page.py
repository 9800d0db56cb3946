"""The page as a whole: well-formed, self-contained, the same every time, and safe whatever names say."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.codegen.shared import Shared
from microfold.compiler import compile_file
from microfold.ir.text import parse
from microfold.options import Options
from microfold.reporting.data import build_report
from microfold.reporting.group import group_report
from microfold.reporting.page.cards import cards
from microfold.reporting.page.group import render_group
from microfold.reporting.page.page import collect_page, render_page
from microfold.reporting.schema import BuildReport, ReportedLibrary
from microfold.reporting.what_if import impossible
from tests.codegen.graphs import accumulator, several_outputs
from tests.reporting.page.graphs import inverted_residuals
from tests.reporting.page.html_reader import Page, read_html
from tests.reporting.page.pages import (
    ALTERNATIVES,
    CNN,
    DIGITS,
    MADE,
    report_of,
    report_of_graph,
    report_saying,
    uneven_profile,
)

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "' onmouseover='alert(3)",
    "]]></svg></style><b>&lt;&amp;{{ 7 * 7 }}{% raw %}",
    "javascript:alert(4)",
)


def rendered(report: BuildReport, full: bool = False) -> str:
    """The page; with everything that may be on it, if it is to be full."""
    if not full:
        return render_page(collect_page(report))
    other = ("other.json", report_of(CNN, optimize="size"))
    return render_page(
        collect_page(report, other=other, profile=uneven_profile(report), alternatives=ALTERNATIVES)
    )


def check(text: str, beside: Collection[str] = ()) -> Page:
    """What is true of every page.

    Args:
        beside: files that it may name.
    """
    page = read_html(text)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    for link in page.values("href"):
        assert link in beside or (link.startswith("#") and link[1:] in ids), link
    for name in ("aria-labelledby", "aria-describedby"):
        assert {each for value in page.values(name) for each in value.split()} <= set(ids)
    # Nothing is loaded, and nothing could be.
    assert not any(page.values(name) for name in ("src", "srcset", "action", "data", "poster", "xlink:href"))
    assert not any(page.values(name) for name in ("style", "onclick", "onload", "onerror", "onmouseover"))
    assert not {"link", "iframe", "object", "embed", "img", "base", "form"} & {e.tag for e in page.elements}
    (style,), (script,) = page.all("style"), page.all("script")
    assert re.findall(r"@import|url\(", style.text) == ["url("] and "url(#hatch)" in style.text
    (policy,) = [e for e in page.all("meta") if e.attributes.get("http-equiv")]
    for element in (style, script):
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy.attributes["content"]
    assert policy.attributes["content"].startswith("default-src 'none'; ")
    assert "unsafe" not in policy.attributes["content"]
    # Drawings have names for those who do not see them, and so have regions that can be scrolled.
    for element in page.elements:
        if element.tag == "svg":
            assert {"aria-label", "aria-labelledby", "aria-hidden"} & element.attributes.keys()
        if "tabindex" in element.attributes:
            assert element.attributes["role"] == "group" and element.attributes["aria-label"]
    assert [e.tag for e in page.all("h1")] == ["h1"]
    return page


@pytest.mark.parametrize("name", ["cnn_int8", "cnn_f32", "stream_int8", "attn_f32", "cnn_int16x8"])
def test_models(name: str) -> None:
    report = report_of(MADE / f"{name}.tflite")
    page = check(rendered(report))
    assert "://" not in rendered(report)
    assert page.all("title")[0].text == f"{name} for cortex-m4 \N{EN DASH} microfold report"
    rows = [value for value in page.values("id") if value.startswith("layer-")]
    assert rows == [f"layer-{i}" for i in range(len(report.layers))]


def test_everything_at_once() -> None:
    page = check(rendered(report_of(DIGITS), full=True))
    assert {e.attributes["id"] for e in page.all("section")} == {
        "comparison", "memory", "layers", "profile", "graph", "headroom", "kernels", "pruning", "what-if"
    }  # fmt: skip


def test_windows_of_rows() -> None:
    program = compile_file(CNN, target.load("cortex-m4"), Options(io="rows"))
    report = build_report(program, None)
    text = rendered(report)
    assert "rows" in {e.attributes["id"] for e in check(text).all("section")}
    assert report.stream is not None
    kept, whole = (sum(getattr(w, name) for w in report.stream.windows) for name in ("bytes", "whole"))
    assert f"<b>{kept:,}</b> bytes instead of {whole:,}" in text
    # A report of a version that did not say how large tensors are.
    older = replace(report.stream, windows=tuple(replace(w, whole=None) for w in report.stream.windows))
    assert "instead of" not in check(rendered(replace(report, stream=older))).all("p")[-1].text


def test_several_models() -> None:
    names = ("cnn_int8", "stream_int8")
    options = Options(memory="split")
    programs = tuple(compile_file(MADE / f"{n}.tflite", target.load("cortex-m4"), options) for n in names)
    shared = Shared("both", programs)
    reports = [build_report(program, None) for program in programs]
    data = group_report(shared, None, reports, "0x00000000u")
    page = check(render_group(data), beside=[f"{name}_report.html" for name in names])
    assert page.all("title")[0].text == "both for cortex-m4 \N{EN DASH} microfold report"
    assert [e.attributes["id"] for e in page.all("section")] == ["models", "shared"]


def test_graphs_of_other_kinds() -> None:
    for graph in (accumulator(), several_outputs(), inverted_residuals(3)):
        check(rendered(report_of_graph(graph)))


def test_a_report_without_layers() -> None:
    """No build has none, a stored file may."""
    report = replace(report_of(CNN), layers=(), edges=())
    page = check(render_page(collect_page(report)))
    assert [e.attributes["id"] for e in page.all("section")] == ["pruning"]


def test_the_same_report_gives_the_same_page() -> None:
    assert rendered(report_of(DIGITS), full=True) == rendered(report_of(DIGITS), full=True)


def test_what_is_needed_is_what_the_header_says() -> None:
    report = report_of(CNN)
    items = [element.text for element in check(rendered(report)).all("li")]
    assert report.needs and set(report.needs) <= set(items)


def test_libraries_are_needed() -> None:
    report = replace(report_of(CNN), libraries=(ReportedLibrary("cmsis-nn", (), ("arm_a_s8", "arm_b_s8")),))
    items = [element.text for element in check(rendered(report)).all("li")]
    assert "link with cmsis-nn, which provides arm_a_s8, arm_b_s8" in items


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_names_stay_text(evil: str) -> None:
    report = report_saying(evil)
    profile = replace(uneven_profile(report), source=evil)
    text = render_page(
        collect_page(
            report, other=(evil, report_saying(evil)), profile=profile,
            alternatives=[*ALTERNATIVES, impossible("cortex-m3", "size", evil)],
        )
    )  # fmt: skip
    page = check(text)
    assert page.all("h1")[0].text == evil, "it is shown as it is"
    assert any(e.attributes.get("title", "").startswith(evil) for e in page.elements)
    assert {e.tag for e in page.elements} <= {
        e.tag for e in check(rendered(report_of(DIGITS), full=True)).elements
    }
    assert "49" not in page.all("h1")[0].text


def test_names_from_a_model_stay_text() -> None:
    evil = HOSTILE[0] + HOSTILE[1].replace('"', "")
    graph = parse(
        f'graph @"{evil}"(%"{evil}x": float32[1,2]) -> (%"{evil}y") {{\n'
        f'  %"{evil}w" = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]\n'
        f'  %"{evil}y": float32[1,2] = fully_connected(%"{evil}x", %"{evil}w")\n}}\n'
    )
    text = rendered(report_of_graph(graph))
    check(text)
    assert "alert(1)" in text and "<script>alert" not in text and "<img" not in text


def test_what_cannot_be_seen_is_shown() -> None:
    report = replace(report_of(CNN), model="a\0b\x1b[31mc\u202ed\ud800")
    page = check(rendered(report))
    sign = "\N{REPLACEMENT CHARACTER}"
    assert page.all("h1")[0].text == f"a{sign}b{sign}[31mc{sign}d{sign}"


def test_estimated_cycles_say_how_far_they_may_be_off() -> None:
    report = report_of(CNN)
    rows = {row.name: row.value for card in cards(report, None) for row in card.rows}
    assert rows["error of the cycles"] == f"±{report.cycles_error} %" != "±None %"
    unknown = cards(replace(report, cycles_error=None), None)
    assert not any("error" in row.name for card in unknown for row in card.rows)
