"""HTML page of a quantisation: figures of the whole, schemes on the target, losses by layer, advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from microfold import __version__
from microfold.quantization.compare import LayerQuality
from microfold.quantization.wording import (
    decibels_text,
    layer_name,
    lossiest_layer,
    lowest_agreement,
    lowest_snr,
    percent_text,
    verification_text,
)
from microfold.reporting.page.cards import Card, CardRow, change
from microfold.reporting.page.layers import BAR
from microfold.reporting.page.page import render
from microfold.reporting.page.scale import number, rank, signed
from microfold.reporting.what_if import time_of

if TYPE_CHECKING:
    from microfold.quantization.session import Quantisation, SchemeResult
    from microfold.reporting.what_if import WhatIfBuild


class PageCell(Struct, frozen=True):
    """Cell of a table: sort key, text, and the length of its bar; None: no bar."""

    value: float | None
    text: str
    bar: float | None = None


class SchemeRow(Struct, frozen=True):
    """Table row of a scheme, or of the float model."""

    scheme: str
    chosen: bool
    cells: list[PageCell]


class LossRow(Struct, frozen=True):
    """Table row of a layer."""

    number: int
    name: str
    tensor: str
    operator: str
    type: str
    worst: bool
    cells: list[PageCell]


class LossTable(Struct, frozen=True):
    """Layers of a scheme.

    Attributes:
        anchor: identifier of the row of the layer in which most is lost; empty if nothing is lost.
        biases: whether the rows have a cell for biases that exceed 32 bits.
    """

    scheme: str
    summary: str
    anchor: str
    advice: Sequence[str]
    biases: bool
    rows: list[LossRow]


class QuantisationPage(Struct, frozen=True):
    """Data of the template.

    Attributes:
        columns: titles of `SchemeRow.cells`.
        problems: sentences about schemes without a model, without C code, or with wrong C code.
    """

    version: str
    scheme: str
    sha256: str
    cards: list[Card]
    columns: Sequence[str]
    schemes: list[SchemeRow]
    tables: list[LossTable]
    problems: list[str]
    memory_note: str


def render_quantisation(found: Quantisation, chosen: SchemeResult) -> str:
    """Return the text of one self-contained HTML file; it is deterministic.

    Args:
        chosen: result that the cards show.
    """
    accuracy = found.accuracy is not None
    first = sorted(found.results, key=lambda result: result is not chosen)
    page = QuantisationPage(
        version=__version__,
        scheme=chosen.scheme.name,
        sha256=chosen.sha256 if chosen.data else "",
        cards=_cards(found, chosen),
        columns=(
            "file",
            "SNR, dB",
            "same answer, %",
            *(("accuracy, %",) if accuracy else ()),
            "RAM",
            "flash",
            "cycles" if found.figures.estimated_cycles is not None else "instructions",
        ),
        schemes=_schemes(found, chosen),
        tables=[_table(result) for result in first if result.layers],
        problems=[line for result in first for line in _problems(result)],
        memory_note=(
            "RAM is arena, state and stack; flash is constants and code."
            if found.figures.measured
            else "RAM is arena and state; flash is constants. The code was not measured."
        ),
    )
    return render("quantization.html.j2", page=page, found=found)


def _cards(found: Quantisation, chosen: SchemeResult) -> list[Card]:
    ours, theirs = chosen.figures, found.figures
    outputs = chosen.outputs
    snr, agreement = lowest_snr(outputs), lowest_agreement(outputs)
    quality = [CardRow(f"SNR, output {i}", f"{_decibels(o.snr)}") for i, o in enumerate(outputs[:3])]
    if found.accuracy is not None:
        quality.append(CardRow("accuracy, float32", f"{percent_text(found.accuracy)} %"))
        accuracy = outputs[0].accuracy if outputs else None
        quality.append(CardRow("accuracy, quantised", f"{percent_text(accuracy)} %"))
    quality.append(CardRow("C code", verification_text(chosen)))
    samples = f"On {number(len(found.split.held_back))} held-back samples."
    total, unit = (
        (percent_text(agreement), "% same answers")
        if agreement is not None
        else (_decibels(snr) if outputs else "unknown", "")
    )
    size = len(chosen.data) or None
    cycles = theirs.estimated_cycles is not None
    return [
        Card("Quality", total, unit, None, quality, [], samples),
        _card("RAM", ours and ours.ram, theirs.ram, "bytes", []),
        _card("Flash", ours and ours.flash, theirs.flash, "bytes", [CardRow("file", number(size))]),
        _card("One run", _time(ours), _time(theirs), "cycles" if cycles else "instructions", []),
    ]


def _card(title: str, ours: int | None, theirs: int | None, unit: str, rows: list[CardRow]) -> Card:
    compared = [CardRow("float32 model", number(theirs)), *rows]
    return Card(title, number(ours), unit, change(ours, theirs), compared, [], "")


def _time(build: WhatIfBuild | None) -> int | None:
    return time_of(build) if build is not None else None


def _decibels(snr: float | None) -> str:
    return "exact" if snr is None else f"{signed(decibels_text(snr))} dB"


def _schemes(found: Quantisation, chosen: SchemeResult) -> list[SchemeRow]:
    builds = [found.figures, *(result.figures for result in found.results)]
    sizes = [found.size, *(len(result.data) or None for result in found.results)]
    ram, flash = ([getattr(build, key, None) for build in builds] for key in ("ram", "flash"))
    columns = [_bars(values) for values in (sizes, ram, flash, [_time(build) for build in builds])]
    rows: list[SchemeRow] = []
    for index, result in enumerate((None, *found.results)):
        outputs = result.outputs if result is not None else ()
        snr = lowest_snr(outputs)
        # Equal outputs have no SNR, and are best.
        quality = [
            PageCell(float("inf") if snr is None else snr, signed(decibels_text(snr))) if outputs else _EMPTY,
            _share(lowest_agreement(outputs)),
        ]
        if found.accuracy is not None:
            share = outputs[0].accuracy if outputs else None
            quality.append(_share(found.accuracy if result is None else share))
        file, *target = (column[index] for column in columns)
        name = "float32" if result is None else result.scheme.name
        rows.append(SchemeRow(name, result is chosen, [file, *quality, *target]))
    return rows


_EMPTY = PageCell(-1, "")


def _share(share: float | None) -> PageCell:
    return PageCell(share, percent_text(share)) if share is not None else _EMPTY


def _bars(values: Sequence[int | None]) -> list[PageCell]:
    most = max((value or 0 for value in values), default=0)
    bars = [round(BAR * value / most, 1) if value else None for value in values]
    return [PageCell(rank(value), number(value), length) for value, length in zip(values, bars, strict=True)]


def _table(result: SchemeResult) -> LossTable:
    layers = result.layers
    worst = lossiest_layer(layers)
    errors = [(_relative_error(layer.snr), _relative_error(layer.own_snr)) for layer in layers]
    most = [max((pair[i] for pair in errors), default=0.0) for i in range(2)]
    overflow = any(layer.overflowed_biases for layer in layers)
    rows = [
        LossRow(
            layer.number,
            layer_name(layer),
            layer.tensor,
            layer.operator,
            layer.type,
            layer is worst,
            [
                _loss(layer.snr, pair[0], most[0]),
                _loss(layer.own_snr, pair[1], most[1]),
                PageCell(layer.saturated, percent_text(layer.saturated)),
                *([PageCell(layer.overflowed_biases, _biases(layer))] if overflow else []),
            ],
        )
        for layer, pair in zip(layers, errors, strict=True)
    ]
    snr = lowest_snr(result.outputs)
    summary = "all outputs are equal" if snr is None else f"SNR of the outputs: {_decibels(snr)}"
    anchor = f"{result.scheme.name}-{worst.number}" if worst is not None else ""
    return LossTable(result.scheme.name, summary, anchor, result.advice, overflow, rows)


def _relative_error(snr: float | None) -> float:
    """Return the root of the ratio of the differences' power to the values' power, at most 1."""
    return 0.0 if snr is None else min(10 ** (-snr / 20), 1.0)


def _loss(snr: float | None, error: float, most: float) -> PageCell:
    key = float("inf") if snr is None else snr
    return PageCell(key, signed(decibels_text(snr)), round(BAR * error / most, 1) if most else 0.0)


def _biases(layer: LayerQuality) -> str:
    return f"{layer.overflowed_biases} of {layer.biases}" if layer.overflowed_biases else ""


def _problems(result: SchemeResult) -> list[str]:
    if result.problem:
        return [f"{result.scheme.name}: {result.problem}"]
    if result.verified is not None and not result.verified.exact:
        return [f"{result.scheme.name}: C code {verification_text(result)}: {result.verified.reason}"]
    return []
