"""Cards with the figures at the top of the page, next to the figures of another build, if given."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from microfold.reporting.page.scale import number, signed
from microfold.reporting.schema import BuildReport

# Length of a card's bar, in units of its drawing.
BAR = 200.0


class FigureChange(Struct, frozen=True):
    """Difference of a figure from that of another build.

    Attributes:
        kind: ``less``, ``more``, or ``same``; less is better for all figures on the cards.
    """

    kind: str
    text: str


class CardRow(Struct, frozen=True):
    """Figure of a card."""

    name: str
    value: str
    change: FigureChange | None = None

    @property
    def is_figure(self) -> bool:
        """Whether the value is a number, which is never broken; long names of types are broken."""
        return self.value[:1].isdigit()


class BarPart(Struct, frozen=True):
    """Part of a card's bar."""

    x: float
    width: float
    colour: str
    tip: str


class Card(Struct, frozen=True):
    """Card with figures.

    Attributes:
        total: main figure, in `unit`.
        note: a short remark; may be empty.
    """

    title: str
    total: str
    unit: str
    change: FigureChange | None
    rows: list[CardRow]
    parts: list[BarPart]
    note: str


def change(ours: int | None, theirs: int | None) -> FigureChange | None:
    """Return the difference in percent of the other figure, or None if one of them is unknown."""
    if ours is None or theirs is None:
        return None
    if ours == theirs:
        return FigureChange("same", "=")
    text = f"{100 * (ours - theirs) / theirs:+.1f} %" if theirs else f"+{number(ours)}"
    return FigureChange("less" if ours < theirs else "more", signed(text))


def cards(report: BuildReport, other: BuildReport | None) -> list[Card]:
    """Return the cards for RAM, flash, one run, and the model.

    Args:
        other: build to compare with.
    """
    return [_ram(report, other), _flash(report, other), _run(report, other), _model(report, other)]


def _ram(report: BuildReport, other: BuildReport | None) -> Card:
    ours, theirs = report.ram, other.ram if other is not None else None
    figures = [
        ("arena", ours.arena, theirs and theirs.arena),
        ("state", ours.state, theirs and theirs.state),
        ("stack, maximum", ours.stack, theirs and theirs.stack),
    ]
    note = "The arena is proved to be minimal for these kernels."
    if ours.arena > ours.arena_bound:
        note = f"The arena for these kernels needs at least {number(ours.arena_bound)} bytes (proved)."
    if ours.parts:
        note += f" It is split over {len(ours.parts)} memories: {', '.join(map(number, ours.parts))} bytes."
    total = change(ours.total, theirs and theirs.total)
    return memory_card("RAM", ours.total, total, figures, note)


def _flash(report: BuildReport, other: BuildReport | None) -> Card:
    ours, theirs = report.flash, other.flash if other is not None else None
    figures = [
        ("constants", ours.weights, theirs and theirs.weights),
        ("code", ours.code, theirs and theirs.code),
        ("C library", ours.library, theirs and theirs.library),
    ]
    if ours.padding or (theirs and theirs.padding):
        figures.append(("padding", ours.padding, theirs and theirs.padding))
    note = "The code was not measured." if ours.code is None else ""
    total = change(ours.total, theirs and theirs.total)
    return memory_card("Flash", ours.total, total, figures, note)


def memory_card(
    title: str,
    total: int,
    changed: FigureChange | None,
    figures: Sequence[tuple[str, int | None, int | None]],
    note: str,
) -> Card:
    """Return a card of sizes in bytes, with a bar of their parts.

    Args:
        figures: name of each part, its bytes, and its bytes in another build.
    """
    rows = [CardRow(name, number(ours), change(ours, theirs)) for name, ours, theirs in figures]
    parts: list[BarPart] = []
    x = 0.0
    for i, (name, ours, _) in enumerate(figures):
        if ours:
            width = round(BAR * ours / total, 2)
            parts.append(BarPart(round(x, 2), width, f"part{i}", f"{name}: {number(ours)} bytes"))
            x += width
    return Card(title, number(total), "bytes", changed, rows, parts, note)


def _run(report: BuildReport, other: BuildReport | None) -> Card:
    def theirs(name: str) -> int | None:
        return getattr(other, name) if other is not None else None

    counted = report.instructions is not None
    rows = [CardRow("MACs", number(report.macs), change(report.macs, theirs("macs")))]
    if (sliding := report.sliding) is not None:
        rows.append(CardRow("new frames", f"{sliding.step} of {sliding.frames}"))
        rows.append(CardRow("MACs over the whole window", number(sliding.window_macs)))
    if counted:
        estimate = report.estimated_instructions
        rows.append(CardRow("instructions, estimated", number(estimate)))
    if report.time is not None and report.macs:
        rows.append(CardRow("instructions per MAC", f"{report.time / report.macs:.2f}"))
    cycles = report.estimated_cycles
    if cycles is not None:
        rows.append(CardRow("cycles, estimated", number(cycles), change(cycles, theirs("estimated_cycles"))))
        if report.cycles_error is not None:
            rows.append(CardRow("error of the cycles", f"±{report.cycles_error} %"))
    note = "Counted on a simulated core." if counted else "Estimated by the cost model."
    if report.time is None:
        note = "Unknown, because external code computes a part."
    compared = change(report.time, theirs("time"))
    return Card("One run", number(report.time), "instructions", compared, rows, [], note)


def _model(report: BuildReport, other: BuildReport | None) -> Card:
    kernels = {layer.kernel for layer in report.layers}
    rows = [CardRow(f"input {i}" if i else "input", str(port)) for i, port in enumerate(report.inputs[:2])]
    rows += [
        CardRow(f"output {i}" if i else "output", str(port)) for i, port in enumerate(report.outputs[:2])
    ]
    rows.append(CardRow("kernels", number(len(kernels))))
    count = len(report.layers)
    compared = change(count, len(other.layers)) if other is not None else None
    left_out = sum(pruned.macs_before - pruned.macs_after for pruned in report.pruned)
    note = f"{number(left_out)} MACs are proved superfluous and omitted." if left_out else ""
    return Card("Model", number(count), "layers" if count != 1 else "layer", compared, rows, [], note)
