"""The HTML page of a quantisation: its sections, its figures, and that names cannot change it."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from microfold.quantization.build import Verified
from microfold.quantization.page import render_quantisation
from microfold.quantization.session import Quantisation, SchemeResult
from tests.command_line import refuse
from tests.quantization.results import LAYERED, UNBUILT, UNMADE, quantisation, scheme_result
from tests.reporting.page.html_reader import Page
from tests.reporting.page.test_page import HOSTILE, check


def read(found: Quantisation, chosen: SchemeResult | None = None) -> Page:
    return check(render_quantisation(found, chosen or found.results[0]))


def texts(page: Page, tag: str, class_: str = "") -> list[str]:
    return [element.text for element in page.all(tag, class_=class_)]


def test_one_scheme() -> None:
    page = read(quantisation())
    assert page.values("id") == ["loss", "schemes", "layers-int8", "int8-0", "int8-2"]
    assert [t.strip() for t in texts(page, "p", "total")] == ["75.0", "300", "2,000", "8,000"]
    assert texts(page, "span", "change") == [
        "\N{MINUS SIGN}66.7 %",
        "\N{MINUS SIGN}60.0 %",
        "\N{MINUS SIGN}33.3 %",
    ]
    assert {"advice <b>", "a signature was added"} <= set(texts(page, "li"))
    # The only layer that loses anything alone is marked, and the advice leads to it.
    assert texts(page, "b", "more") == ["most"] and "#int8-0" in page.values("href")
    cells = texts(page, "td", "n")
    assert {"0.5", "1 of 4", "exact", "4,000", "60.0", "50.0"} <= set(map(str.strip, cells))


def test_schemes_with_problems_are_rows_and_notes() -> None:
    differs = scheme_result("int16x8", Verified(False, 20, "layer 'out' differs"), cycles=None)
    page = read(quantisation(Verified(True, 20, ""), differs, UNMADE, UNBUILT))
    assert "layers-int16x8" in page.values("id") and "layers-int4" not in page.values("id")
    assert {
        "int4: ai-edge-quantizer failed",
        "dynamic: no kernel",
        "int16x8: C code NOT exact: layer 'out' differs",
    } <= set(texts(page, "li"))
    # The page of a scheme without C code says so, and has no figures for it.
    page = read(quantisation(Verified(True, 20, ""), UNBUILT), UNBUILT)
    assert [t.strip() for t in texts(page, "p", "total")][1:] == ["\N{EN DASH}"] * 3
    assert read(quantisation(Verified(True, 20, ""), UNMADE), UNMADE).all("h1")


def test_bars_show_relative_errors() -> None:
    """20 dB are a tenth: the layer with 30 dB has a third of its bar."""
    page = read(quantisation())
    lengths = [float(e.attributes["width"]) for e in page.all("rect", class_="estimated")]
    worst = [float(e.attributes["width"]) for e in page.all("rect", class_="counted")]
    assert lengths[0] > 0 and abs(worst[0] / lengths[0] - 10 ** (-10 / 20)) < 0.01
    assert lengths[1] == 0 and worst[1] == lengths[0]


def test_names_are_escaped_and_pages_repeat() -> None:
    for text in HOSTILE:
        layers = tuple(replace(layer, tensor=text, operator=text, type=text) for layer in LAYERED.layers)
        result = replace(LAYERED, layers=layers, problem=text, advice=(text,))
        found = replace(quantisation(), model=text, target=text, notes=(text,), results=(result,))
        page = read(found)
        assert [e.tag for e in page.elements].count("script") == 1 and not page.all("img")
        assert {text} == {e.text for e in page.all("h1")}
        assert render_quantisation(found, result) == render_quantisation(found, result)


def test_outputs_do_not_replace_each_other(tmp_path: Path) -> None:
    model = tmp_path / "x.tflite"
    model.write_bytes(b"")
    common = ("quantize", model, "--data", tmp_path / "x.npy")
    assert "--html must not be the float model" in refuse(*common, "--compare", "--html", model)
    same = ("-o", tmp_path / "y", "--html", tmp_path / "y")
    assert "--html must not be the file of --output" in refuse(*common, *same)
