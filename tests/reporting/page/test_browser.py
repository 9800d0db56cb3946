"""The page in a real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from microfold.reporting.page.page import collect_page, render_page
from microfold.reporting.what_if import impossible
from tests.needs import need_modules, need_tools
from tests.reporting.page.graphs import inverted_residuals
from tests.reporting.page.pages import (
    ALTERNATIVES,
    CNN,
    DIGITS,
    MADE,
    ROOT,
    report_of,
    report_of_graph,
    report_saying,
    uneven_profile,
)
from tests.sampling import sampled

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

MODELS = (
    CNN,
    DIGITS,
    ROOT / "examples" / "sine" / "sine.tflite",
    *(
        MADE / f"{name}.tflite"
        for name in (
            "attn_f32", "cnn_int16x8", "dscnn_bn_int8", "lt_gru_f32", "preact_bn_int8", "stream_int8",
            "o2t_nchw_full_integer_quant",
        )
    ),
)  # fmt: skip
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need_tools("chromium")
    need_modules("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        yield launched
        launched.close()


# Numbers that stand on two lines, and texts of drawings that lie over each other or stick out.
UNREADABLE = """() => {
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = texts.nextNode());) {
    if (node.parentElement.tagName === "CODE") continue;
    for (const match of node.textContent.matchAll(/[0-9][0-9.,]*[0-9]/g)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const boxes = [...range.getClientRects()].filter(each => each.width);
      if (new Set(boxes.map(each => Math.round(each.top))).size > 1) found.push(`broken: ${match[0]}`);
    }
  }
  for (const drawing of document.querySelectorAll("svg")) {
    const frame = drawing.getBoundingClientRect();
    const texts = [...drawing.querySelectorAll("text")];
    const boxes = texts.map(text => text.getBoundingClientRect());
    boxes.forEach((box, i) => {
      if (Math.min(box.left - frame.left, frame.right - box.right, frame.bottom - box.bottom) < -1) {
        found.push(`sticks out: ${texts[i].textContent}`);
      }
      // Boxes around slanted texts say nothing.
      if (texts[i].hasAttribute("transform")) return;
      boxes.slice(0, i).forEach((other, j) => {
        const width = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const height = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (!texts[j].hasAttribute("transform") && width > 1 && height > 3) {
          found.push(`overlap: ${texts[j].textContent}, ${texts[i].textContent}`);
        }
      });
    });
  }
  return found;
}"""


class Visit:
    """A page that is looked at; whatever it says to the console, and loads, is written down."""

    def __init__(self, browser: Browser, path: Path, *, scripts: bool = True):
        self.said: list[str] = []
        self.loaded: list[str] = []
        self.page: Page = browser.new_page(viewport=DESKTOP, java_script_enabled=scripts)  # type: ignore[arg-type]
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.loaded.append(request.url))
        self.page.goto(path.as_uri())

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def colours(self, selector: str) -> tuple[Any, Any]:
        """Of text and of what is behind it, as three numbers each."""
        script = """selector => {
          const text = document.querySelector(selector);
          return [getComputedStyle(text).color, getComputedStyle(document.body).backgroundColor];
        }"""
        text, behind = self.page.evaluate(script, selector)
        return tuple(tuple(map(int, re.findall(r"\d+", colour)[:3])) for colour in (text, behind))  # type: ignore[return-value]


def luminance(colour: tuple[int, int, int]) -> float:
    """Relative luminance, by WCAG 2.2."""
    parts = [c / 255 for c in colour]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """The ratio of WCAG 2.2: text needs 4.5."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def check(visit: Visit, layers: int) -> None:
    """What is true of every page, light and dark, wide and narrow."""
    page = visit.page
    table = page.locator("table.layers")
    heading = table.locator("th", has_text="MACs")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for selector in ("h1", "p.soft", "nav a", ".facts dt", ".card .note", "td .soft, .less, p.soft"):
            if page.locator(selector).count():
                text, behind = visit.colours(selector)
                assert contrast(text, behind) >= 4.5, (scheme, selector)
        assert (luminance(visit.colours("h1")[1]) < 0.1) == (scheme == "dark")
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert visit.overflow() <= 0, size
        assert page.evaluate(UNREADABLE) == [], size
    page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
    if heading.count():
        index = [cell.inner_text() for cell in table.locator("th").all()].index("MACs")
        for order in ("descending", "ascending"):
            heading.locator("button").click()
            assert heading.get_attribute("aria-sort") == order
            script = "(rows, index) => rows.map(row => Number(row.cells[index].dataset.value))"
            values = table.locator("tbody tr").evaluate_all(script, index)
            assert len(values) == layers
            assert values == sorted(values, reverse=order == "descending")
    assert visit.said == []
    assert visit.loaded == [page.url.partition("#")[0]]


@pytest.mark.parametrize("path", sampled(MODELS, 4), ids=lambda path: path.stem)
def test_models(path: Path, browser: Browser, tmp_path: Path) -> None:
    report = report_of(path)
    file = tmp_path / "report.html"
    file.write_text(render_page(collect_page(report)), encoding="utf-8")
    visit = Visit(browser, file)
    check(visit, len(report.layers))
    visit.page.close()


def test_large_numbers(browser: Browser, tmp_path: Path) -> None:
    """Those of image classification: cards are narrow."""
    large = replace(report_of(DIGITS), macs=12_501_632, estimated_cycles=14_088_763)
    file = tmp_path / "report.html"
    file.write_text(render_page(collect_page(large)), encoding="utf-8")
    visit = Visit(browser, file)
    check(visit, len(large.layers))
    visit.page.close()


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A page with all sections, of many layers."""
    report = report_of_graph(inverted_residuals(16, 24))
    page = collect_page(
        report,
        other=("other.json", report_of(DIGITS)),
        profile=uneven_profile(report),
        alternatives=ALTERNATIVES,
    )
    path = tmp_path / "report.html"
    path.write_text(render_page(page), encoding="utf-8")
    return path


def test_everything_at_once(browser: Browser, full: Path) -> None:
    visit = Visit(browser, full)
    page = visit.page
    check(visit, page.locator("table.layers tbody tr").count())
    # Text first: names from A on.
    names = page.locator("table.layers th", has_text="layer")
    names.locator("button").click()
    assert names.get_attribute("aria-sort") == "ascending"
    shown = page.locator("table.layers td:nth-child(2)").all_inner_texts()
    assert shown[0] < shown[-1]
    # A layer that is clicked is marked in every drawing, and a second time nowhere.
    row = page.locator("#layer-5")
    for marked in (True, False):
        row.locator("td").first.click()
        for section in ("memory", "layers", "profile", "graph", "headroom"):
            assert (page.locator(f"#{section} .selected").count() > 0) == marked, section
    # What a mark is stands beside the pointer.
    page.locator("#graph .node").nth(3).hover()
    assert page.locator(".tip").inner_text().startswith("layer 3: ")
    page.mouse.move(2, 2)
    assert page.locator(".tip").is_hidden()
    # A link to why a layer has its kernel leads there, and what is folded can be opened.
    page.locator("#layer-2 a").click()
    assert page.url.endswith("#kernel-2")
    page.locator("#kernel-2 summary").click()
    assert page.locator("#kernel-2 .refused").is_visible()
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for details in page.locator("summary").all()[:60]:
        details.evaluate("summary => summary.parentNode.open = true")
    assert visit.overflow() <= 0
    assert visit.said == []
    page.close()


def test_without_scripts(browser: Browser, full: Path) -> None:
    visit = Visit(browser, full, scripts=False)
    titles = visit.page.locator("#memory .mark > title")
    assert titles.count() == visit.page.locator("#memory .block, #memory .shared").count() > 0
    assert visit.page.locator("table.layers").is_visible()
    visit.page.locator("#kernel-1 summary").click()
    assert visit.page.locator("#kernel-1 table").is_visible()
    assert visit.said == []
    visit.page.close()


def test_endless_names(browser: Browser, tmp_path: Path) -> None:
    """Without a place to break them; everything that can be opened is."""
    name = "x" * 400
    report = report_saying(name)
    page = collect_page(
        report, other=(name, report), profile=uneven_profile(report),
        alternatives=[*ALTERNATIVES, impossible("cortex-m3", "size", name)],
    )  # fmt: skip
    path = tmp_path / "report.html"
    path.write_text(render_page(page), encoding="utf-8")
    visit = Visit(browser, path)
    visit.page.locator("details").evaluate_all("all => all.forEach(details => { details.open = true; })")
    for size in (DESKTOP, PHONE):
        visit.page.set_viewport_size(size)  # type: ignore[arg-type]
        assert visit.overflow() <= 0, size
    assert visit.said == []
    visit.page.close()
