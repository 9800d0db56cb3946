"""Arc diagram of the graph: layers on a line in order of execution, and values as arcs between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from microfold.reporting.page.palette import Palette
from microfold.reporting.page.scale import CHARACTER, WIDTH, number, shortened
from microfold.reporting.schema import BuildReport, ReportedEdge, ReportedEnd

# Names are slanted to the lower left.
_LEFT, _RIGHT = 64.0, 16.0
_NARROWEST, _WIDEST = 14.5, 96.0
_THINNEST, _THICKEST = 0.8, 11.0
_HIGHEST, _DEEPEST = 170.0, 70.0
_NAME_LENGTH = 20
# Slant of the names in degrees, and their distance from the line.
_SLANT, _GAP = 60.0, 18.0


class Dot(Struct, frozen=True):
    """Layer, input, output or state.

    Attributes:
        layer: number of the layer, or None.
        label: name below the line.
    """

    kind: Literal["input", "layer", "state", "output"]
    layer: int | None
    x: float
    radius: float
    colour: str
    label: str
    tip: str


class Arc(Struct, frozen=True):
    """Value between two dots.

    Attributes:
        path: SVG path.
        layers: numbers of the layers at its ends, separated by blanks.
        back: whether it leads back, below the line: a state for the next run.
    """

    path: str
    width: float
    layers: str
    back: bool
    tip: str


class GraphChart(Struct, frozen=True):
    """Data of the drawing.

    Attributes:
        line: y coordinate of the line with the layers.
        names_y: y coordinate at which their names end.
        slant: slant of the names, in degrees.
    """

    width: float
    height: float
    line: float
    names_y: float
    slant: float
    dots: list[Dot]
    arcs: list[Arc]


class _Arch(Struct, frozen=True):
    """Heights of the arcs on one side of the line.

    Attributes:
        height: height of the longest arc.
        longest: length of the longest arc; 0 without arcs.
    """

    height: float
    longest: float

    def over(self, length: float) -> float:
        """Return the height of an arc: at most a semicircle, and at most the available height.

        The square root keeps short arcs away from the line.
        """
        return round(min(length / 2, self.height * (length / self.longest) ** 0.5), 1) if length else 0.0


def _arch(lengths: Sequence[float], highest: float) -> _Arch:
    longest = max(lengths, default=0.0)
    return _Arch(min(longest / 2, highest), longest)


def graph_chart(report: BuildReport, palette: Palette) -> GraphChart | None:
    """Return the drawing of a report's edges, or None without layers."""
    if not report.layers:
        return None
    places = _places(report)
    step = min(max((WIDTH - _LEFT - _RIGHT) / len(places), _NARROWEST), _WIDEST)
    x = {place: round(_LEFT + (i + 0.5) * step, 1) for i, place in enumerate(places)}
    lengths = [x[edge.reader] - x[edge.source] for edge in report.edges]
    above = _arch([length for length in lengths if length >= 0], _HIGHEST)
    below = _arch([-length for length in lengths if length < 0], _DEEPEST)
    largest = max((edge.bytes for edge in report.edges), default=0) or 1
    thickest = min(_THICKEST, 0.5 * step)
    line = round(above.height + thickest + 8, 1)
    names_y = round(line + below.height + thickest / 2 + _GAP, 1)
    dots = [_dot(place, report, palette, x[place], step) for place in places]
    names_height = math.sin(math.radians(_SLANT)) * CHARACTER * max(len(dot.label) for dot in dots)
    arcs: list[Arc] = []
    for edge, length in zip(report.edges, lengths, strict=True):
        height = below.over(-length) if length < 0 else above.over(length)
        path = f"M{x[edge.source]} {line}A{round(abs(length) / 2, 1)} {height} 0 0 1 {x[edge.reader]} {line}"
        width = round(_THINNEST + (thickest - _THINNEST) * edge.bytes / largest, 2)
        arcs.append(_arc(edge, report, path, width, back=length < 0))
    return GraphChart(
        width=round(_LEFT + step * len(places) + _RIGHT, 1),
        height=round(names_y + names_height + 4, 1),
        line=line,
        names_y=names_y,
        slant=_SLANT,
        dots=dots,
        # Thick arcs first, so that thin ones stay visible.
        arcs=sorted(arcs, key=lambda arc: -arc.width),
    )


def _places(report: BuildReport) -> list[ReportedEnd]:
    """Return all dots on the line, in order."""
    states = {end.index for edge in report.edges for end in (edge.source, edge.reader) if end.kind == "state"}
    return [
        *(ReportedEnd("input", i) for i in range(len(report.inputs))),
        *(ReportedEnd("state", i) for i in sorted(states)),
        *(ReportedEnd("layer", i) for i in range(len(report.layers))),
        *(ReportedEnd("output", i) for i in range(len(report.outputs))),
    ]


def _dot(place: ReportedEnd, report: BuildReport, palette: Palette, x: float, step: float) -> Dot:
    radius = round(min(6.5, 0.32 * step), 1)
    if place.kind == "layer":
        layer = report.layers[place.index]
        tip = f"layer {place.index}: {layer.name}\n{' + '.join((layer.op, *layer.fused))}\n{layer.output}"
        name = shortened(layer.name, _NAME_LENGTH)
        return Dot("layer", place.index, x, radius, palette.of(layer), name, tip)
    if place.kind == "state":
        return Dot(
            "state", None, x, radius, "", f"state {place.index}", f"state {place.index}: kept between runs"
        )
    port = (report.inputs if place.kind == "input" else report.outputs)[place.index]
    tip = f"{place.kind} {place.index}: {shortened(port.name, 60)}\n{port}\n{number(port.bytes)} bytes"
    return Dot(place.kind, None, x, radius, "", f"{place.kind} {place.index}", tip)


def _arc(edge: ReportedEdge, report: BuildReport, path: str, width: float, *, back: bool) -> Arc:
    layers = [end.index for end in (edge.source, edge.reader) if end.kind == "layer"]
    ends = " to ".join(_end_name(end, report) for end in (edge.source, edge.reader))
    tip = f"{number(edge.bytes)} bytes\n{ends}\n{shortened(edge.tensor, 90)}"
    return Arc(path, width, " ".join(map(str, layers)), back, tip)


def _end_name(end: ReportedEnd, report: BuildReport) -> str:
    if end.kind == "layer":
        return f"{end.index} {report.layers[end.index].name}"
    return f"{end.kind} {end.index}"
