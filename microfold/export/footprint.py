"""The table of a package's README: what the model needs."""

from __future__ import annotations

from microfold.codegen.stack_size import compile_command
from microfold.program import Program
from microfold.report.data import Report


def footprint(program: Program, report: Report) -> list[tuple[str, str, str]]:
    """Rows: what, how much, and how that is known."""
    compiled = compile_command(program)
    ram, flash = report["ram"], report["flash"]
    placed = (
        "in the context, inputs and outputs included" if program.options.io == "arena" else "in the context"
    )
    rows = [
        ("RAM: arena", _bytes(ram["arena"]), placed),
        ("RAM: state", _bytes(ram["state"]), "in the context, kept from run to run"),
        ("RAM: stack", _bytes(ram["stack"]), "at most, library functions included"),
        ("flash: weights", _bytes(flash["weights"]), "constants"),
        ("flash: code", _bytes(flash["code"]), f"`{compiled}`"),
        ("flash: library functions", _bytes(flash["library"]), "of the C library and the compiler"),
        ("multiply-accumulates", f"{report['macs']:,}", "for one run"),
        ("instructions", _count(report["estimated_instructions"]), "for one run; estimated, nothing was run"),
    ]
    if report["estimated_cycles"] is not None:
        rows.append(("cycles", _count(report["estimated_cycles"]), "without wait states; estimated"))
    return rows


def _bytes(value: int | None) -> str:
    return "not measured" if value is None else f"{value:,} bytes"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def summary(report: Report) -> str:
    """The same in a line, for manifests."""
    ram, flash = report["ram"], report["flash"]
    stack = "" if ram["stack"] is None else f", {ram['stack']} bytes of stack"
    known = [flash[part] for part in ("weights", "code", "library", "padding") if flash[part] is not None]
    return (
        f"{ram['arena'] + ram['state']} bytes of RAM{stack}, {sum(known)} bytes of flash, "
        f"{report['macs']} multiply-accumulates"
    )
