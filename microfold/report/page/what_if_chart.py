"""What if: every target and level as a point, instructions against flash and against RAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from microfold.report.page.palette import COLOURS
from microfold.report.page.scale import Linear, Logarithmic, Tick, around, number, rank
from microfold.report.what_if import Alternative, pareto_front

_WIDTH, _HEIGHT = 528.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 12.0, 28.0, 46.0
# Points that are nearer than this are one.
_NEAR = 6.0


@dataclass(frozen=True)
class Point:
    """One or more alternatives at one place.

    Attributes:
        shape: of the level: ``size``, ``balanced`` or ``speed``.
        front: no other level of its target is better.
        current: it is the page's own.
    """

    x: float
    y: float
    colour: str
    shape: str
    front: bool
    current: bool
    tip: str


@dataclass(frozen=True)
class WhatIfChart:
    """A drawing; `lines` join the points of a target, from the fewest instructions on."""

    title: str
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


@dataclass(frozen=True)
class WhatIfRow:
    """An alternative as a row of the table; `values` are what it is sorted by."""

    target: str
    optimize: str
    colour: str
    problem: str | None
    cells: list[tuple[float, str]]
    front: bool
    front_of_all: bool
    current: bool


@dataclass(frozen=True)
class WhatIf:
    """The section."""

    charts: list[WhatIfChart]
    legend: list[tuple[str, str]]
    rows: list[WhatIfRow]
    measured: bool


@dataclass(frozen=True)
class _Field:
    """What the drawings have in common.

    Attributes:
        known: the alternatives that can be drawn.
        colours: of targets.
        fronts: those that no other level of their target beats.
        own: the page's own build, if it is among them.
    """

    known: Sequence[Alternative]
    colours: Mapping[str, str]
    fronts: Set[Alternative]
    own: Alternative | None


def what_if_section(alternatives: Sequence[Alternative], own: tuple[str, str] | None) -> WhatIf:
    """The charts and the table.

    Args:
        own: target and level of the page's own build; None if it is like none of them.
    """
    targets = list(dict.fromkeys(a.target for a in alternatives))
    known = [a for a in alternatives if a.estimated_instructions is not None]
    field = _Field(
        known,
        {name: f"op{i}" if i < COLOURS else "op-others" for i, name in enumerate(targets)},
        {a for name in targets for a in pareto_front([k for k in known if k.target == name])},
        next((a for a in known if (a.target, a.optimize) == own), None),
    )
    charts: list[WhatIfChart] = []
    if known:
        charts = [
            _chart("Flash, bytes", field, lambda a: a.flash),
            _chart("RAM, bytes", field, lambda a: a.ram),
        ]
    best = set(pareto_front(known))
    return WhatIf(
        charts,
        [(field.colours[name], name) for name in targets],
        [_row(a, field, a in best) for a in alternatives],
        all(a.measured for a in known),
    )


def _chart(title: str, field: _Field, value: Callable[[Alternative], int | None]) -> WhatIfChart:
    known = field.known
    x = around((a.estimated_instructions or 0 for a in known), _LEFT, _WIDTH - _RIGHT)
    y = Linear(1.12 * max(value(a) or 1 for a in known), _HEIGHT - _BOTTOM, _TOP)
    places = {a: (x(max(a.estimated_instructions or 0, 1)), y(value(a) or 0)) for a in known}
    lines = [
        (colour, _line([places[a] for a in known if a.target == name]))
        for name, colour in field.colours.items()
    ]
    return WhatIfChart(
        title=title,
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


def _points(field: _Field, places: Mapping[Alternative, tuple[float, float]]) -> Iterator[Point]:
    """Cores of one kind often get the same code: alternatives of one level at one place are one point."""
    groups: dict[tuple[str, float, float], list[Alternative]] = {}
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
            tip="\n".join(map(_tip, group)),
        )


def _row(a: Alternative, field: _Field, front_of_all: bool) -> WhatIfRow:
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


def _tip(a: Alternative) -> str:
    return (
        f"{a.target}, {a.optimize}: {number(a.estimated_instructions)} instructions, "
        f"{number(a.flash)} bytes of flash, {number(a.ram)} of RAM"
    )


def _line(places: list[tuple[float, float]]) -> str:
    """The points of a polyline."""
    distinct = sorted(set(places))
    return " ".join(f"{x},{y}" for x, y in distinct) if len(distinct) > 1 else ""


def _spaced(scale: Logarithmic) -> list[Tick]:
    """The ticks whose numbers do not run into each other."""
    kept: list[Tick] = []
    for tick in scale.ticks():
        if not kept or tick.at - kept[-1].at > 3.6 * (len(tick.text) + len(kept[-1].text)):
            kept.append(tick)
    return kept
