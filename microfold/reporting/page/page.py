"""HTML page of a report: collects all parts, and renders them with `templates/report`."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup
from msgspec import Struct

from microfold import __version__
from microfold.reporting.page.cards import BAR as CARD_BAR
from microfold.reporting.page.cards import Card, cards
from microfold.reporting.page.comparison import BAR as COMPARISON_BAR
from microfold.reporting.page.comparison import ReportComparison, compare
from microfold.reporting.page.graph_chart import GraphChart, graph_chart
from microfold.reporting.page.headroom_chart import HeadroomChart, headroom_chart
from microfold.reporting.page.layers import BAR as LAYER_BAR
from microfold.reporting.page.layers import (
    FigureColumn,
    LayerChoice,
    LayerRow,
    Segment,
    choices,
    cost_strip,
    costs,
    layer_table,
)
from microfold.reporting.page.memory_chart import MemoryChart, block_name, memory_chart
from microfold.reporting.page.palette import Entry, Palette
from microfold.reporting.page.profile_chart import ProfileChart, profile_chart
from microfold.reporting.page.pruning_strips import STRIP, Certificate, certificates
from microfold.reporting.page.row_windows import RowWindows, row_windows
from microfold.reporting.page.scale import WIDTH, number, rank
from microfold.reporting.page.what_if_chart import (
    TradeoffsSection,
    WhatIf,
    tradeoffs_section,
    what_if_section,
)
from microfold.reporting.profile import DeviceProfile
from microfold.reporting.schema import BuildReport, Tradeoff, WhatIfBuild
from microfold.support import resources

# Invisible characters: control characters, direction overrides, lone surrogates.
_NOT_SHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Sizes of drawings, for the templates.
_SIZES = {
    "WIDTH": WIDTH,
    "CARD_BAR": CARD_BAR,
    "LAYER_BAR": LAYER_BAR,
    "COMPARISON_BAR": COMPARISON_BAR,
    "STRIP": STRIP,
}


class Page(Struct, frozen=True):
    """Data of the templates; an attribute that is None or empty has no section.

    Attributes:
        block_names: names of the report's blocks, in order.
    """

    version: str
    report: BuildReport
    cards: list[Card]
    comparison: ReportComparison | None
    legend: list[Entry]
    memory: MemoryChart | None
    row_windows: RowWindows | None
    block_names: list[str]
    strip: list[Segment]
    figures: list[FigureColumn]
    rows: list[LayerRow]
    profile: DeviceProfile | None
    profile_chart: ProfileChart | None
    graph: GraphChart | None
    choices: list[LayerChoice]
    headroom: HeadroomChart | None
    certificates: list[Certificate]
    what_if: WhatIf | None
    tradeoffs: TradeoffsSection | None


def collect_page(
    report: BuildReport,
    *,
    other: tuple[str, BuildReport] | None = None,
    profile: DeviceProfile | None = None,
    alternatives: Sequence[WhatIfBuild] = (),
    front: Sequence[Tradeoff] = (),
) -> Page:
    """Return all parts of the page.

    Args:
        other: build to compare with, and the name of its file.
        profile: measurements of this model on a device.
        alternatives: builds of the model for other targets and levels.
        front: Pareto-optimal builds for this target.
    """
    palette = Palette(report.layers)
    limited = report.options.flash is not None or report.options.ram is not None
    own = None if limited else (report.target, report.options.optimize)
    figures, rows = layer_table(report, palette, profile)
    return Page(
        version=__version__,
        report=report,
        cards=cards(report, other[1] if other is not None else None),
        comparison=compare(report, other[1], other[0]) if other is not None else None,
        legend=palette.legend(costs(report)),
        memory=memory_chart(report, palette),
        row_windows=row_windows(report.stream) if report.stream is not None else None,
        block_names=[block_name(block, report) for block in report.blocks] if report.layers else [],
        strip=cost_strip(report, palette),
        figures=figures,
        rows=rows,
        profile=profile,
        profile_chart=profile_chart(report, profile) if profile is not None else None,
        graph=graph_chart(report, palette),
        choices=choices(report, palette),
        headroom=headroom_chart(report, palette),
        certificates=certificates(report),
        what_if=what_if_section(alternatives, own) if alternatives else None,
        tradeoffs=tradeoffs_section(front) if front else None,
    )


def render_page(page: Page) -> str:
    """Return the text of one self-contained HTML file; it is deterministic."""
    return render("page.html.j2", page=page, report=page.report)


def render(template: str, **parts: object) -> str:
    """Render a template of `templates/report` with the page's style and script."""
    style, script = _static("style.css"), _static("script.js")
    return (
        _environment()
        .get_template(template)
        .render(
            **parts,
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash(style),
            script_hash=_hash(script),
            **_SIZES,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    """Return an environment that escapes all values, because names in models can be arbitrary."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.template_dir() / "report"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Any] = env.filters
    filters |= {"number": number, "rank": rank}
    return env


def _visible(value: object) -> object:
    """Return the value with invisible characters replaced by a visible one."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _NOT_SHOWN.sub("\N{REPLACEMENT CHARACTER}", value)
    return value


def _static(name: str) -> str:
    return (resources.template_dir() / "report" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash of a text for a content security policy, which blocks all other scripts and styles."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
