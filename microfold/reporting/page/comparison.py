"""Comparison of two builds: their figures, and their layers by name."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from microfold.reporting.page.cards import FigureChange, change
from microfold.reporting.page.scale import number, signed
from microfold.reporting.schema import BuildReport, ReportedLayer

# Maximum length of a bar to either side, in units of its drawing.
BAR = 70.0


class ComparedFigure(Struct, frozen=True):
    """Figure of both builds."""

    name: str
    ours: str
    theirs: str
    change: FigureChange | None


class ComparedLayer(Struct, frozen=True):
    """Layer of one build or both.

    Attributes:
        kernels: kernels of the other build and of ours, if they differ.
        x, width: bar of the difference in instructions; the middle of the drawing is zero.
        difference: difference in instructions; None if one figure is unknown.
    """

    name: str
    op: str
    note: str
    kernels: tuple[str, str] | None
    ours: int | None
    theirs: int | None
    change: FigureChange | None
    difference: int | None
    difference_text: str
    weights: FigureChange | None
    x: float
    width: float


class ReportComparison(Struct, frozen=True):
    """Data of the section."""

    title: str
    file: str
    figures: list[ComparedFigure]
    layers: list[ComparedLayer]
    alike: int


def compare(report: BuildReport, other: BuildReport, file: str) -> ReportComparison:
    """Return the differences from another report; layers without differences are only counted.

    Args:
        file: name of the other report's file.
    """
    pairs = list(_pairs(report, other))
    different = [(a, b) for a, b in pairs if _differ(a, b)]
    gaps = [_difference(a, b) for a, b in different]
    most = max((abs(gap) for gap in gaps if gap is not None), default=0)
    return ReportComparison(
        f"{other.model} for {other.target}, {other.options.optimize}",
        file,
        list(_figures(report, other)),
        [_layer(a, b, most) for a, b in different],
        len(pairs) - len(different),
    )


def _figures(report: BuildReport, other: BuildReport) -> Iterator[ComparedFigure]:
    figures = (
        ("RAM: arena", report.ram.arena, other.ram.arena),
        ("RAM: state", report.ram.state, other.ram.state),
        ("RAM: stack", report.ram.stack, other.ram.stack),
        ("flash: constants", report.flash.weights, other.flash.weights),
        ("flash: code", report.flash.code, other.flash.code),
        ("flash: C library", report.flash.library, other.flash.library),
        ("MACs", report.macs, other.macs),
        ("instructions, estimated", report.estimated_instructions, other.estimated_instructions),
        ("instructions, counted", report.instructions, other.instructions),
        ("cycles, estimated", report.estimated_cycles, other.estimated_cycles),
        ("layers", len(report.layers), len(other.layers)),
    )
    for name, ours, theirs in figures:
        if ours is not None or theirs is not None:
            yield ComparedFigure(name, number(ours), number(theirs), change(ours, theirs))


def _pairs(
    report: BuildReport, other: BuildReport
) -> Iterator[tuple[ReportedLayer | None, ReportedLayer | None]]:
    """Yield pairs of layers with equal names: ours in order, then layers that only the other build has."""
    theirs = {layer.name: layer for layer in other.layers}
    for layer in report.layers:
        yield layer, theirs.pop(layer.name, None)
    for layer in theirs.values():
        yield None, layer


def _differ(ours: ReportedLayer | None, theirs: ReportedLayer | None) -> bool:
    def seen(layer: ReportedLayer) -> tuple[object, ...]:
        return layer.op, layer.kernel, _cost(layer), layer.weights, layer.macs, layer.scratch

    return ours is None or theirs is None or seen(ours) != seen(theirs)


def _cost(layer: ReportedLayer | None) -> int | None:
    if layer is None:
        return None
    return layer.instructions if layer.instructions is not None else layer.estimated_instructions


def _difference(ours: ReportedLayer | None, theirs: ReportedLayer | None) -> int | None:
    costs = [_cost(layer) if layer is not None else 0 for layer in (ours, theirs)]
    return None if costs[0] is None or costs[1] is None else costs[0] - costs[1]


def _layer(ours: ReportedLayer | None, theirs: ReportedLayer | None, most: int) -> ComparedLayer:
    layer = ours or theirs
    assert layer is not None
    gap = _difference(ours, theirs)
    length = round(BAR * abs(gap or 0) / most, 1) if most else 0.0
    both = (theirs.kernel, ours.kernel) if ours is not None and theirs is not None else None
    return ComparedLayer(
        name=layer.name,
        op=layer.op,
        note="" if both else "only here" if ours is not None else "only there",
        kernels=both if both and both[0] != both[1] else None,
        ours=_cost(ours),
        theirs=_cost(theirs),
        change=change(_cost(ours), _cost(theirs)),
        difference=gap,
        difference_text="" if gap is None else signed(f"{gap:+,}"),
        weights=change(ours.weights, theirs.weights) if ours is not None and theirs is not None else None,
        x=BAR - length if (gap or 0) < 0 else BAR,
        width=length,
    )
