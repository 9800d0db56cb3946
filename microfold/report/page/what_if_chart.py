"""What if: every target and level as a point, instructions against flash and against RAM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def what_if_section(alternatives: Sequence[Alternative], target: str, optimize: str) -> WhatIf:
    """The charts and the table.

    Args:
        target, optimize: those of the page's own build.
    """
    targets = list(dict.fromkeys(a.target for a in alternatives))
    colours = {name: f"op{i}" if i < COLOURS else "op-others" for i, name in enumerate(targets)}
    known = [a for a in alternatives if a.estimated_instructions is not None]
    fronts = {a for name in targets for a in pareto_front([k for k in known if k.target == name])}
    best = set(pareto_front(known))

    own = next((a for a in known if (a.target, a.optimize) == (target, optimize)), None)

    def chart(title: str, value: Callable[[Alternative], int | None]) -> WhatIfChart:
        x = around((a.estimated_instructions or 0 for a in known), _LEFT, _WIDTH - _RIGHT)
        y = Linear(1.12 * max(value(a) or 1 for a in known), _HEIGHT - _BOTTOM, _TOP)
        places = {a: (x(max(a.estimated_instructions or 0, 1)), y(value(a) or 0)) for a in known}
        lines = [(colours[name], _line([places[a] for a in known if a.target == name])) for name in targets]
        # Cores of one kind often get the same code: they are one point.
        groups: dict[tuple[str, float, float], list[Alternative]] = {}
        for a in known:
            column, row = (round(each / _NEAR) for each in places[a])
            groups.setdefault((a.optimize, column, row), []).append(a)
        points: list[Point] = []
        for group in groups.values():
            first = own if own in group else group[0]
            tip = "\n".join(map(_tip, group))
            points.append(
                Point(
                    *places[first], colours[first.target], first.optimize, first in fronts, first is own, tip
                )
            )
        return WhatIfChart(
            title,
            _WIDTH,
            _HEIGHT,
            _LEFT,
            _WIDTH - _RIGHT,
            _TOP,
            _HEIGHT - _BOTTOM,
            _spaced(x),
            y.ticks(),
            [(colour, path) for colour, path in lines if path],
            points,
        )

    charts = [chart("Flash, bytes", lambda a: a.flash), chart("RAM, bytes", lambda a: a.ram)] if known else []
    return WhatIf(
        charts,
        [(colours[name], name) for name in targets],
        [
            WhatIfRow(
                a.target,
                a.optimize,
                colours[a.target],
                a.problem,
                [
                    (rank(v), number(v))
                    for v in (a.estimated_instructions, a.estimated_cycles, a.flash, a.ram)
                ],
                a in fronts,
                a in best,
                a is own,
            )
            for a in alternatives
        ],
        all(a.measured for a in known),
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
