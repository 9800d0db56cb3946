"""The figures at the top of the page, each beside that of another build if there is one."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.report.page.scale import number, signed
from microfold.report.stored import BuildReport
from microfold.support.frozen import frozen

# Of a card's bar, in units of its drawing.
BAR = 200.0


@frozen
class Change:
    """How a figure differs from another build's.

    Attributes:
        kind: ``less``, ``more``, or ``same``; less is better for all figures here.
    """

    kind: str
    text: str


@frozen
class Row:
    """A figure of a card."""

    name: str
    value: str
    change: Change | None = None

    @property
    def is_figure(self) -> bool:
        """Whether it is a number, which is not broken; names of types are, where they are long."""
        return self.value[:1].isdigit()


@frozen
class Part:
    """A part of a card's bar."""

    x: float
    width: float
    colour: str
    tip: str


@frozen
class Card:
    """A card.

    Attributes:
        total: its main figure, in `unit`.
        note: a short remark; may be empty.
    """

    title: str
    total: str
    unit: str
    change: Change | None
    rows: list[Row]
    parts: list[Part]
    note: str


def change(ours: int | None, theirs: int | None) -> Change | None:
    """A difference in percent of the other figure; None if there is no other figure."""
    if ours is None or theirs is None:
        return None
    if ours == theirs:
        return Change("same", "=")
    text = f"{100 * (ours - theirs) / theirs:+.1f} %" if theirs else f"+{number(ours)}"
    return Change("less" if ours < theirs else "more", signed(text))


def cards(report: BuildReport, other: BuildReport | None) -> list[Card]:
    """RAM, flash, one run, and the model.

    Args:
        other: the build to compare with.
    """
    return [_ram(report, other), _flash(report, other), _run(report, other), _model(report, other)]


def _ram(report: BuildReport, other: BuildReport | None) -> Card:
    ours, theirs = report.ram, other.ram if other is not None else None
    figures = [
        ("arena", ours.arena, theirs and theirs.arena),
        ("state", ours.state, theirs and theirs.state),
        ("stack, at most", ours.stack, theirs and theirs.stack),
    ]
    note = "It is proved that no arena for these kernels is smaller."
    if ours.arena > ours.arena_bound:
        note = f"No arena for these kernels can have less than {number(ours.arena_bound)} bytes."
    if ours.parts:
        note += f" It lies in {len(ours.parts)} memories: {', '.join(map(number, ours.parts))} bytes."
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
    changed: Change | None,
    figures: Sequence[tuple[str, int | None, int | None]],
    note: str,
) -> Card:
    """A card of bytes with a bar of its parts.

    Args:
        figures: each part's name, its bytes, and those in another build.
    """
    rows = [Row(name, number(ours), change(ours, theirs)) for name, ours, theirs in figures]
    parts: list[Part] = []
    x = 0.0
    for i, (name, ours, _) in enumerate(figures):
        if ours:
            width = round(BAR * ours / total, 2)
            parts.append(Part(round(x, 2), width, f"part{i}", f"{name}: {number(ours)} bytes"))
            x += width
    return Card(title, number(total), "bytes", changed, rows, parts, note)


def _run(report: BuildReport, other: BuildReport | None) -> Card:
    def theirs(name: str) -> int | None:
        return getattr(other, name) if other is not None else None

    counted = report.instructions is not None
    rows = [Row("MACs", number(report.macs), change(report.macs, theirs("macs")))]
    if (sliding := report.sliding) is not None:
        rows.append(Row("new frames", f"{sliding.step} of {sliding.frames}"))
        rows.append(Row("MACs over the whole window", number(sliding.window_macs)))
    if counted:
        estimate = report.estimated_instructions
        rows.append(Row("instructions, estimated", number(estimate)))
    if report.time is not None and report.macs:
        rows.append(Row("instructions per MAC", f"{report.time / report.macs:.2f}"))
    cycles = report.estimated_cycles
    if cycles is not None:
        rows.append(Row("cycles, estimated", number(cycles), change(cycles, theirs("estimated_cycles"))))
        if report.cycles_error is not None:
            rows.append(Row("which may be off by", f"{report.cycles_error} %"))
    note = "Executed by a simulated core." if counted else "By the cost model; nothing was run."
    if report.time is None:
        note = "External code computes a part: it is not known."
    compared = change(report.time, theirs("time"))
    return Card("One run", number(report.time), "instructions", compared, rows, [], note)


def _model(report: BuildReport, other: BuildReport | None) -> Card:
    kernels = {layer.kernel for layer in report.layers}
    rows = [Row(f"input {i}" if i else "input", str(port)) for i, port in enumerate(report.inputs[:2])]
    rows += [Row(f"output {i}" if i else "output", str(port)) for i, port in enumerate(report.outputs[:2])]
    rows.append(Row("kernels", number(len(kernels))))
    count = len(report.layers)
    compared = change(count, len(other.layers)) if other is not None else None
    left_out = sum(pruned.macs_before - pruned.macs_after for pruned in report.pruned)
    note = f"{number(left_out)} MACs are proved superfluous and left out." if left_out else ""
    return Card("Model", number(count), "layers" if count != 1 else "layer", compared, rows, [], note)
