"""Chart of accumulator headroom: the bits of each layer's accumulators that some input can reach."""

from __future__ import annotations

from msgspec import Struct

from microfold.reporting.page.palette import Palette
from microfold.reporting.page.scale import WIDTH, ChartColumn, Linear, Tick, columns, number
from microfold.reporting.schema import BuildReport, ReportedLayer

_LEFT, _RIGHT, _TOP, _PLOT, _BOTTOM = 72.0, 12.0, 24.0, 180.0, 40.0
_NARROWEST, _WIDEST = 13.0, 90.0


class Bar(Struct, frozen=True):
    """Accumulator bits of a layer.

    Attributes:
        kind: style class of the operator, or ``unproved``.
        top: y coordinate of the accumulator's full width.
    """

    layer: int
    x: float
    y: float
    width: float
    height: float
    top: float
    kind: str
    label: str
    tip: str


class HeadroomChart(Struct, frozen=True):
    """Data of the drawing."""

    width: float
    height: float
    left: float
    right: float
    bottom: float
    columns: list[ChartColumn]
    ticks: list[Tick]
    bars: list[Bar]


def headroom_chart(report: BuildReport, palette: Palette) -> HeadroomChart | None:
    """Return the drawing, or None if no layer has integer sums."""
    known = [layer for layer in report.layers if layer.accumulator is not None]
    if not known:
        return None
    steps = columns(len(report.layers), _LEFT, WIDTH - _RIGHT, _NARROWEST, _WIDEST)
    right, bottom = round(steps[-1].x + steps[-1].width, 1), _TOP + _PLOT
    bits = max(max(layer.accumulator.type_bits for layer in known if layer.accumulator), 32)
    y = Linear(bits, bottom, _TOP)
    unproved = set(report.accumulators.unproved_layers)
    bars = [
        _bar(column, layer, y, palette, layer.name in unproved)
        for column, layer in zip(steps, report.layers, strict=True)
        if layer.accumulator is not None
    ]
    ticks = [Tick(y(value), str(value)) for value in range(0, bits + 1, 8 if bits == 32 else 16)]
    width = max(right + _RIGHT, 420.0)
    return HeadroomChart(width, bottom + _BOTTOM, _LEFT, right, bottom, steps, ticks, bars)


def _bar(column: ChartColumn, layer: ReportedLayer, y: Linear, palette: Palette, unproved: bool) -> Bar:
    sums = layer.accumulator
    assert sums is not None
    # A bound beyond the type is drawn up to the type's width; the colour shows that it is not proved.
    used = min(layer.accumulator_bits or 0, sums.type_bits)
    free = sums.type_bits - (layer.accumulator_bits or 0)
    room = f"{free} bits free" if free >= 0 else "may overflow"
    tip = (
        f"layer {column.layer}: {layer.name}\n{layer.accumulator_bits} of {sums.type_bits} bits, {room}\n"
        f"sums from {number(sums.low)} to {number(sums.high)}\n"
        f"largest partial sum {number(sums.largest_partial)}"
    )
    gap = min(column.width * 0.16, 6)
    return Bar(
        column.layer,
        round(column.x + gap, 1),
        y(used),
        round(column.width - 2 * gap, 1),
        round(y(0) - y(used), 1),
        y(sums.type_bits),
        "unproved" if unproved else palette.of(layer),
        str(layer.accumulator_bits) if column.width >= 18 else "",
        tip,
    )
