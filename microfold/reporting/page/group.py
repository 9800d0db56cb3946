"""HTML page of several models that are built together."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from microfold import __version__
from microfold.reporting.group_schema import GroupFlash, GroupRam, GroupReport
from microfold.reporting.page.cards import Card, memory_card
from microfold.reporting.page.layers import BAR
from microfold.reporting.page.page import render
from microfold.reporting.page.scale import number


class ModelCell(Struct, frozen=True):
    """Figure of a model, and the length of its bar."""

    value: int | None
    bar: float


class ModelRow(Struct, frozen=True):
    """Table row of a model.

    Attributes:
        page: file name of the model's page.
    """

    name: str
    page: str
    cells: list[ModelCell]


class GroupPage(Struct, frozen=True):
    """Data of the template.

    Attributes:
        command: command line of the build; may be empty.
        titles: titles of the columns of `ModelRow.cells`.
    """

    version: str
    command: str
    cards: list[Card]
    titles: Sequence[str]
    rows: list[ModelRow]


_TITLES = ("arena", "state", "constants", "code", "MACs", "instructions")


def render_group(report: GroupReport) -> str:
    """Render the page of a group's report, as `render_page` does for one model."""
    origin = report.models[0].origin
    page = GroupPage(
        version=__version__,
        command=origin.command if origin is not None else "",
        cards=[_ram(report.ram), _flash(report.flash)],
        titles=_TITLES,
        rows=_rows(report),
    )
    return render("group.html.j2", page=page, report=report)


def _ram(ram: GroupRam) -> Card:
    figures = [
        ("arena", ram.arena_object, None),
        ("state", ram.state, None),
        ("stack, maximum", ram.stack, None),
    ]
    note = f"Without sharing, arenas and states would need {number(ram.apart)} bytes."
    return memory_card("RAM", _known(ram.arena_object, ram.state, ram.stack), None, figures, note)


def _flash(flash: GroupFlash) -> Card:
    code = sum(flash.code) if flash.code is not None else None
    library = _known(flash.library, flash.padding) if flash.library is not None else None
    figures = [
        ("constants", flash.weights, None),
        ("models' code", code, None),
        ("shared code", flash.kernels, None),
        ("library, padding", library, None),
    ]
    note = "The code was not measured."
    if flash.apart is not None:
        note = f"Without sharing, the models would need {number(flash.apart)} bytes."
    total = _known(flash.weights, code, flash.kernels, library)
    return memory_card("Flash", total, None, figures, note)


def _known(*parts: int | None) -> int:
    return sum(part for part in parts if part is not None)


def _rows(report: GroupReport) -> list[ModelRow]:
    code: Sequence[int | None] = report.flash.code or [None] * len(report.models)
    figures = [
        (each.ram.arena, each.ram.state, each.flash.weights, own, each.macs, each.time)
        for each, own in zip(report.models, code, strict=True)
    ]
    columns = [[value or 0 for value in column] for column in zip(*figures, strict=True)]
    # Arenas share memory; the figures of all other columns add up.
    wholes = [max(columns[0]), *map(sum, columns[1:])]
    return [
        ModelRow(
            name=model.model,
            page=f"{model.model}_report.html",
            cells=[
                ModelCell(value, round(BAR * (value or 0) / whole, 1) if whole else 0.0)
                for value, whole in zip(values, wholes, strict=True)
            ],
        )
        for model, values in zip(report.models, figures, strict=True)
    ]
