"""Text output of `microfold bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from microfold.program import Program
from microfold.reporting.schema import BuildReport
from microfold.reporting.tables import Table, TableColumn, number
from microfold.reporting.terminal.figures import (
    console,
    cycles_errors,
    number_text,
    per_instruction,
    print_cycles_note,
    print_layers,
    print_memory,
)
from microfold.reporting.terminal.verify import first_line, print_failures
from microfold.verification.benchmark.suite import BenchmarkRow


def print_bench(program: Program, report: BuildReport) -> None:
    """Print the instructions per layer and in total, and the memory."""
    print_layers(report, instructions=True)
    per_mac = report.instructions_per_mac or None
    console.print(
        f"{report.instructions:,} instructions per run"
        + (f", {per_mac:.3f} per MAC" if per_mac is not None else "")
    )
    if report.estimated_cycles is not None:
        console.print(_cycles(report))
    print_memory(program, report)


def _cycles(report: BuildReport) -> str:
    """Return the cycles of one run as text, with their source and error."""
    cycles, error = report.estimated_cycles, report.cycles_error
    each, least = per_instruction(report)
    text = f"{cycles:,} cycles estimated, {each} per instruction ({least} without stalls)"
    known = f"±{error} %, " if error is not None else ""
    how = f"from executed instructions, {known}timing from {report.cycles_source}"
    return f"{text}, {how}; wait states, caches and buses excluded"


def print_bench_summary(reports: Sequence[BuildReport]) -> None:
    """Print a table with a row for each model."""
    columns = [
        TableColumn("model"),
        number("MACs", rank=1),
        number("instructions"),
        number("per MAC", rank=3),
    ]
    columns += [number("est. cycles", rank=2), number("arena"), number("stack", rank=4), number("weights")]
    columns += [number("code")]
    table = Table(f"one run on {reports[0].target}, bytes and instructions", columns)
    for report in reports:
        per_mac = report.instructions_per_mac or None
        ram, flash = report.ram, report.flash
        numbers = (report.macs, report.instructions, per_mac, report.estimated_cycles)
        numbers = (*numbers, ram.arena, ram.stack)
        row = [number_text(n) for n in (*numbers, flash.weights, flash.code)]
        table.add(report.model, *row)
    console.show(table)
    _print_note({r.target: r.cycles_error for r in reports if r.estimated_cycles is not None})


def print_bench_suite(reports: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with a row for each model, target and level, and the problems of failed builds."""
    columns = (
        TableColumn("model"),
        TableColumn("target"),
        TableColumn("level"),
        number("instructions"),
        number("est. cycles"),
    )
    columns += (
        number("arena"),
        number("stack", rank=2),
        number("weights"),
        number("code"),
        TableColumn("problem", rank=1),
    )
    table = Table("one run, bytes and instructions", columns)
    for report in reports:
        heading = (report["model"], report["target"], report["level"])
        if "error" in report:
            table.add(*heading, *[""] * 6, first_line(report))
            continue
        ram, flash = report["ram"], report["flash"]
        numbers = (report["instructions"], report["estimated_cycles"], ram["arena"], ram["stack"])
        table.add(*heading, *map(number_text, (*numbers, flash["weights"], flash["code"])), "")
    console.show(table)
    _print_note(cycles_errors(reports))
    print_failures(reports)


def _print_note(errors: Mapping[str, int | None]) -> None:
    if errors:
        print_cycles_note(errors)


def print_comparison(rows: Sequence[BenchmarkRow], errors: Mapping[str, int | None]) -> None:
    """Print a table for each figure: microfold, other runtimes, and their ratios to microfold.

    Args:
        errors: see `print_cycles_note`.
    """
    for figure in dict.fromkeys(row.figure for row in rows):
        chosen = [row for row in rows if row.figure == figure]
        names = list(dict.fromkeys(name for row in chosen for name in row.peers))
        columns = [TableColumn("target"), TableColumn("model"), number("microfold")]
        for index, name in enumerate(names):
            columns += [number(name, rank=2 * index + 1), number("times", rank=2 * index + 2)]
        table = Table(figure.replace("_", " "), columns)
        for row in chosen:
            cells = [number_text(row.ours)]
            for name in names:
                theirs = row.peers.get(name)
                ratio = f"{theirs / row.ours:.2f}" if theirs is not None and row.ours else ""
                cells += [number_text(theirs) if theirs is not None else "", ratio]
            table.add(row.target, row.model, *cells)
        console.show(table)
        if figure == "estimated_cycles":
            print_cycles_note({row.target: errors[row.target] for row in chosen})
