"""Resource table in a package's README."""

from __future__ import annotations

from microfold.codegen.stack_size import compile_command
from microfold.program import Program
from microfold.reporting.schema import BuildReport


def footprint(program: Program, report: BuildReport) -> list[tuple[str, str, str]]:
    """Return rows of resource, amount and remark."""
    compiled = compile_command(program)
    ram, flash = report.ram, report.flash
    placed = (
        "in the context, including inputs and outputs" if program.options.io == "arena" else "in the context"
    )
    rows = [
        ("RAM: arena", _bytes(ram.arena), placed),
        ("RAM: state", _bytes(ram.state), "in the context, kept between runs"),
        ("RAM: stack", _bytes(ram.stack), "maximum, including library functions"),
        ("flash: weights", _bytes(flash.weights), "constants"),
        ("flash: code", _bytes(flash.code), f"`{compiled}`"),
        ("flash: library functions", _bytes(flash.library), "from the C library and the compiler"),
        ("multiply-accumulates", f"{report.macs:,}", "per run"),
        ("instructions", _count(report.estimated_instructions), "per run, estimated"),
    ]
    if report.estimated_cycles is not None:
        rows.append(("cycles", _count(report.estimated_cycles), "per run without wait states, estimated"))
    return rows


def _bytes(value: int | None) -> str:
    return "not measured" if value is None else f"{value:,} bytes"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def summary(report: BuildReport) -> str:
    """Return the resources in one line, for manifests."""
    ram, flash = report.ram, report.flash
    stack = "" if ram.stack is None else f", {ram.stack} bytes of stack"
    return (
        f"{ram.arena + ram.state} bytes of RAM{stack}, {flash.total} bytes of flash, "
        f"{report.macs} multiply-accumulates"
    )
