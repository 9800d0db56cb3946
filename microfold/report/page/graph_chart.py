"""The graph as arcs: layers on a line in the order in which they run, values between them as arcs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from microfold.report.page.palette import Palette
from microfold.report.page.scale import CHARACTER, WIDTH, number, shortened
from microfold.report.stored import BuildReport, Edge, End
from microfold.support.frozen import frozen

# Names are set at a slant, to the lower left.
_LEFT, _RIGHT = 64.0, 16.0
_NARROWEST, _WIDEST = 14.5, 96.0
_THINNEST, _THICKEST = 0.8, 11.0
_HIGHEST, _DEEPEST = 170.0, 70.0
_NAME_LENGTH = 20
# Degrees of their slant, and how far below the line they begin.
_SLANT, _GAP = 60.0, 18.0


@frozen
class Dot:
    """A layer, an input, an output or a state.

    Attributes:
        layer: its number; None for the others.
        label: a name, set at a slant below the line.
    """

    kind: Literal["input", "layer", "state", "output"]
    layer: int | None
    x: float
    radius: float
    colour: str
    label: str
    tip: str


@frozen
class Arc:
    """A value.

    Attributes:
        path: of an SVG.
        layers: those at its ends, separated by blanks.
        back: it ends before its beginning: a state for the next run, below the line.
    """

    path: str
    width: float
    layers: str
    back: bool
    tip: str


@frozen
class GraphChart:
    """The drawing.

    Attributes:
        line: the height of the line that the layers are on.
        names_y: the height at which their names end.
        slant: of the names, in degrees.
    """

    width: float
    height: float
    line: float
    names_y: float
    slant: float
    dots: list[Dot]
    arcs: list[Arc]


@frozen
class _Arch:
    """How high arcs are on one side of the line.

    Attributes:
        height: of the longest one.
        longest: its length; 0 if there is none.
    """

    height: float
    longest: float

    def over(self, length: float) -> float:
        """The height of an arc: between a circle and what there is room for.

        The root keeps short arcs apart from the line.
        """
        return round(min(length / 2, self.height * (length / self.longest) ** 0.5), 1) if length else 0.0


def _arch(lengths: Sequence[float], highest: float) -> _Arch:
    longest = max(lengths, default=0.0)
    return _Arch(min(longest / 2, highest), longest)


def graph_chart(report: BuildReport, palette: Palette) -> GraphChart | None:
    """The drawing of a report's edges; None if there are no layers."""
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
        # Thick arcs first: thin ones stay visible.
        arcs=sorted(arcs, key=lambda arc: -arc.width),
    )


def _places(report: BuildReport) -> list[End]:
    """What stands on the line, in order."""
    states = {end.index for edge in report.edges for end in (edge.source, edge.reader) if end.kind == "state"}
    return [
        *(End("input", i) for i in range(len(report.inputs))),
        *(End("state", i) for i in sorted(states)),
        *(End("layer", i) for i in range(len(report.layers))),
        *(End("output", i) for i in range(len(report.outputs))),
    ]


def _dot(place: End, report: BuildReport, palette: Palette, x: float, step: float) -> Dot:
    radius = round(min(6.5, 0.32 * step), 1)
    if place.kind == "layer":
        layer = report.layers[place.index]
        tip = f"layer {place.index}: {layer.name}\n{' + '.join((layer.op, *layer.fused))}\n{layer.output}"
        name = shortened(layer.name, _NAME_LENGTH)
        return Dot("layer", place.index, x, radius, palette.of(layer), name, tip)
    if place.kind == "state":
        return Dot(
            "state", None, x, radius, "", f"state {place.index}", f"state {place.index}: kept from run to run"
        )
    port = (report.inputs if place.kind == "input" else report.outputs)[place.index]
    tip = f"{place.kind} {place.index}: {shortened(port.name, 60)}\n{port}\n{number(port.bytes)} bytes"
    return Dot(place.kind, None, x, radius, "", f"{place.kind} {place.index}", tip)


def _arc(edge: Edge, report: BuildReport, path: str, width: float, *, back: bool) -> Arc:
    layers = [end.index for end in (edge.source, edge.reader) if end.kind == "layer"]
    ends = " to ".join(_end_name(end, report) for end in (edge.source, edge.reader))
    tip = f"{number(edge.bytes)} bytes\n{ends}\n{shortened(edge.tensor, 90)}"
    return Arc(path, width, " ".join(map(str, layers)), back, tip)


def _end_name(end: End, report: BuildReport) -> str:
    if end.kind == "layer":
        return f"{end.index} {report.layers[end.index].name}"
    return f"{end.kind} {end.index}"
