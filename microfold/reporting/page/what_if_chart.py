"""Charts of alternative builds of a model: flash and RAM against time.

The section "what if" shows all targets and levels, the section "tradeoffs" the Pareto-optimal builds for one
target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from msgspec import Struct

from microfold.reporting.page.palette import COLOURS
from microfold.reporting.page.scale import CHARACTER, Linear, Logarithmic, Tick, around, number, rank
from microfold.reporting.schema import Tradeoff
from microfold.reporting.what_if import BuildFigures, WhatIfBuild, pareto_front, time_of

_WIDTH, _HEIGHT = 528.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 12.0, 28.0, 46.0
# Points closer than this are drawn as one.
_NEAR = 6.0


class Point(Struct, frozen=True):
    """Alternatives at one position.

    Attributes:
        shape: level: ``size``, ``balanced`` or ``speed``.
        front: whether no other level of its target is better.
        current: whether it is the build of the page.
    """

    x: float
    y: float
    colour: str
    shape: str
    front: bool
    current: bool
    tip: str


class WhatIfChart(Struct, frozen=True):
    """Data of a drawing; `lines` join the points of a target in order of time."""

    title: str
    x_title: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[tuple[str, str]]
    points: list[Point]


class WhatIfRow(Struct, frozen=True):
    """Table row of an alternative; cells are pairs of sort key and text."""

    target: str
    optimize: str
    colour: str
    problem: str | None
    cells: list[tuple[float, str]]
    front: bool
    front_of_all: bool
    current: bool


class WhatIf(Struct, frozen=True):
    """Data of the section "what if"."""

    charts: list[WhatIfChart]
    legend: list[tuple[str, str]]
    rows: list[WhatIfRow]
    measured: bool


class TradeoffRow(Struct, frozen=True):
    """Table row of a Pareto-optimal build; cells are pairs of sort key and text."""

    arguments: str
    cells: list[tuple[float, str]]


class TradeoffsSection(Struct, frozen=True):
    """Data of the section "tradeoffs"."""

    charts: list[WhatIfChart]
    rows: list[TradeoffRow]


class _Field(Struct, frozen=True):
    """Data that the drawings share.

    Attributes:
        known: alternatives that can be drawn.
        colours: colours of the targets.
        fronts: alternatives that no other level of their target dominates.
        own: build of the page, if it is among them.
        time: returns the time of one run, in `unit`.
        tip: returns the tooltip of an alternative.
    """

    known: Sequence[WhatIfBuild]
    colours: Mapping[str, str]
    fronts: Set[WhatIfBuild]
    own: WhatIfBuild | None
    time: Callable[[WhatIfBuild], int | None]
    unit: str
    tip: Callable[[WhatIfBuild], str]


def what_if_section(alternatives: Sequence[WhatIfBuild], own: tuple[str, str] | None) -> WhatIf:
    """Return the charts and the table.

    Args:
        own: target and level of the page's build; None if it is not among the alternatives.
    """
    targets = list(dict.fromkeys(a.target for a in alternatives))
    known = [a for a in alternatives if a.estimated_instructions is not None]
    field = _Field(
        known,
        {name: f"op{i}" if i < COLOURS else "op-others" for i, name in enumerate(targets)},
        {a for name in targets for a in pareto_front([k for k in known if k.target == name])},
        next((a for a in known if (a.target, a.optimize) == own), None),
        _instructions,
        "instructions",
        _tip,
    )
    best = set(pareto_front(known, _instructions))
    return WhatIf(
        _charts(field),
        [(field.colours[name], name) for name in targets],
        [_row(a, field, a in best) for a in alternatives],
        all(a.measured for a in known),
    )


def tradeoffs_section(front: Sequence[Tradeoff]) -> TradeoffsSection:
    """Return the section of Pareto-optimal builds for the page's target."""
    builds = {
        WhatIfBuild(
            "", t.optimize, None, t.ram, t.flash, False, t.estimated_instructions, t.estimated_cycles
        ): t
        for t in front
    }
    cycles = all(t.estimated_cycles is not None for t in front)
    unit = "cycles" if cycles else "instructions"

    def tip(build: WhatIfBuild) -> str:
        memory = f"{number(build.flash)} bytes of flash, {number(build.ram)} of RAM"
        return f"{builds[build].arguments}: {number(time_of(build))} {unit}, {memory}"

    field = _Field([*builds], {"": "op0"}, {*builds}, None, time_of, unit, tip)
    rows = [
        TradeoffRow(
            t.arguments,
            [(rank(f), number(f)) for f in (t.estimated_instructions, t.estimated_cycles, t.flash, t.ram)],
        )
        for t in front
    ]
    return TradeoffsSection(_charts(field), rows)


def _instructions(build: BuildFigures) -> int | None:
    """Return the estimated instructions, which can be compared between cores."""
    return build.estimated_instructions


def _charts(field: _Field) -> list[WhatIfChart]:
    if not field.known:
        return []
    return [
        _chart("Flash, bytes", field, lambda a: a.flash),
        _chart("RAM, bytes", field, lambda a: a.ram),
    ]


def _chart(title: str, field: _Field, value: Callable[[WhatIfBuild], int | None]) -> WhatIfChart:
    known = field.known
    x = around((field.time(a) or 0 for a in known), _LEFT, _WIDTH - _RIGHT)
    y = Linear(1.12 * max(value(a) or 1 for a in known), _HEIGHT - _BOTTOM, _TOP)
    places = {a: (x(max(field.time(a) or 0, 1)), y(value(a) or 0)) for a in known}
    lines = [
        (colour, _line([places[a] for a in known if a.target == name]))
        for name, colour in field.colours.items()
    ]
    return WhatIfChart(
        title=title,
        x_title=f"estimated {field.unit} of one run; logarithmic",
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_WIDTH - _RIGHT,
        top=_TOP,
        bottom=_HEIGHT - _BOTTOM,
        x_ticks=_spaced(x),
        y_ticks=y.ticks(),
        lines=[(colour, path) for colour, path in lines if path],
        points=list(_points(field, places)),
    )


def _points(field: _Field, places: Mapping[WhatIfBuild, tuple[float, float]]) -> Iterator[Point]:
    """Yield the points. Similar cores often get equal code: such alternatives of one level are one point."""
    groups: dict[tuple[str, float, float], list[WhatIfBuild]] = {}
    for a, (x, y) in places.items():
        groups.setdefault((a.optimize, round(x / _NEAR), round(y / _NEAR)), []).append(a)
    for group in groups.values():
        first = field.own if field.own in group else group[0]
        yield Point(
            *places[first],
            colour=field.colours[first.target],
            shape=first.optimize,
            front=first in field.fronts,
            current=first is field.own,
            tip="\n".join(map(field.tip, group)),
        )


def _row(a: WhatIfBuild, field: _Field, front_of_all: bool) -> WhatIfRow:
    figures = (a.estimated_instructions, a.estimated_cycles, a.flash, a.ram)
    return WhatIfRow(
        target=a.target,
        optimize=a.optimize,
        colour=field.colours[a.target],
        problem=a.problem,
        cells=[(rank(figure), number(figure)) for figure in figures],
        front=a in field.fronts,
        front_of_all=front_of_all,
        current=a is field.own,
    )


def _tip(a: WhatIfBuild) -> str:
    return (
        f"{a.target}, {a.optimize}: {number(a.estimated_instructions)} instructions, "
        f"{number(a.flash)} bytes of flash, {number(a.ram)} of RAM"
    )


def _line(places: list[tuple[float, float]]) -> str:
    """Return the points of a polyline."""
    distinct = sorted(set(places))
    return " ".join(f"{x},{y}" for x, y in distinct) if len(distinct) > 1 else ""


def _spaced(scale: Logarithmic) -> list[Tick]:
    """Return the ticks whose numbers are within the drawing and do not overlap."""
    kept: list[Tick] = []
    for tick in scale.ticks():
        half = CHARACTER / 2 * len(tick.text)
        if tick.at + half > _WIDTH:
            break
        if not kept or tick.at - kept[-1].at > half + CHARACTER / 2 * len(kept[-1].text):
            kept.append(tick)
    return kept
