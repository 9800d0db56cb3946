"""Figures and tables in the text output of several commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from microfold.options import ALIGN
from microfold.program import Program
from microfold.reporting.console import console
from microfold.reporting.rows import cycles, instructions, longest
from microfold.reporting.schema import BuildReport, ReportedLayer
from microfold.reporting.tables import Table, TableColumn, number


def number_text(value: int | float | None, *, unknown: str = "not measured") -> str:
    """Return the number with separators of thousands."""
    return unknown if value is None else f"{value:,}"


def print_layers(report: BuildReport, *, instructions: bool) -> None:
    """Print the table of layers, with measured instructions on request."""
    columns = [
        number("#"),
        TableColumn("layer"),
        TableColumn("operator", rank=3),
        TableColumn("kernel", rank=1),
    ]
    columns += [TableColumn("output", rank=4), number("MACs"), number("weights", rank=2)]
    columns += (
        [number("instructions"), number("per MAC", rank=2)] if instructions else [number("est. instructions")]
    )
    if report.estimated_cycles is not None:
        columns.append(number("est. cycles"))
    if report.least_cycles is not None:
        columns += [number("CPI", rank=3), number("limit", rank=3)]
    if report.measured_on is not None:
        columns.append(number("measured cycles"))
    table = Table(f"{report.model} for {report.target}", columns)
    for index, layer in enumerate(report.layers):
        op = " + ".join([layer.op, *layer.fused])
        output = f"{layer.output.dtype}{list(layer.output.shape)}"
        row = [str(index), layer.name, op, layer.kernel, output]
        row += [number_text(layer.macs), number_text(layer.weights)]
        if instructions:
            count = layer.instructions
            row += [number_text(count), f"{(count or 0) / layer.macs:.2f}" if layer.macs else ""]
        else:
            row.append(number_text(layer.estimated_instructions, unknown="unknown"))
        if report.estimated_cycles is not None:
            row.append(number_text(layer.estimated_cycles))
        if report.least_cycles is not None:
            row += per_instruction(layer)
        if report.measured_on is not None:
            row.append(number_text(layer.measured_cycles, unknown="no"))
        table.add(*row)
    console.show(table)
    _print_measured(report)


def per_instruction(figures: BuildReport | ReportedLayer) -> list[str]:
    """Return the estimated cycles per instruction, and their lower limit without stalls."""
    count = figures.instructions
    cycles = (figures.estimated_cycles or 0, figures.least_cycles or 0)
    return [f"{each / count:.2f}" if count else "" for each in cycles]


def print_cycles_note(errors: Mapping[str, int | None]) -> None:
    """Print a note on the accuracy of estimated cycles.

    Args:
        errors: error of the cycles of a whole model in percent, by target; None: unknown.
    """
    each = [f"{cycles_error(error)} on {target}" for target, error in errors.items()]
    text = f"cycles are estimates, {', '.join(each)}, wait states, caches and buses excluded"
    if len(errors) > 1:
        text += "; each core has its own timing model: do not compare cycles of different cores"
    console.print(text)


def cycles_error(error: int | None) -> str:
    """Return the error of a timing model as ASCII text, because pipes and terminals may be limited to it."""
    return f"+-{error} %" if error is not None else "of unknown error"


def cycles_errors(reports: Iterable[Mapping[str, Any]]) -> dict[str, int | None]:
    """Return the error of the cycles in percent by target, for reports with cycles."""
    found = [report for report in reports if report.get("estimated_cycles") is not None]
    return {report["target"]: report["cycles_error"] for report in found}


def _print_measured(report: BuildReport) -> None:
    """Print which figures of a build are measured."""
    if report.measured_on is None:
        return
    found = [layer.measured_cycles for layer in report.layers if layer.measured_cycles is not None]
    console.print(
        f"measured on {report.measured_on}: {len(found)} of {len(report.layers)} layers, "
        f"{sum(found):,} cycles; all others are estimated"
    )
    for name, taken in report.measured_choices.items():
        console.print(f"decided by measured runs: {name}: {taken}")
    if report.measured_run is not None:
        console.print(f"measured whole run: {report.measured_run:,} cycles")


def print_memory(program: Program, report: BuildReport) -> None:
    """Print the table of RAM and flash, in bytes."""
    ram, flash = report.ram, report.flash
    table = Table("", (TableColumn(""), number("bytes"), TableColumn("")))
    scratch = max((layer.scratch for layer in report.layers), default=0)
    proved = ram.arena == ram.arena_bound
    kept = "these kernels" if program.stream is None else "these kernels and this order of rows"
    least = f"proved minimal for {kept}" if proved else f"lower bound {ram.arena_bound:,}"
    note = f"{least}; largest scratch {scratch:,}"
    if program.parts:
        note += f"; in parts of {' and '.join(f'{size:,}' for size in program.parts)}"
    if program.options.align > ALIGN[0]:
        note += f"; aligned to {program.options.align}"
    table.add("RAM: arena", number_text(ram.arena), note)
    table.add("RAM: state", number_text(ram.state), "kept between runs")
    used = f"; {ram.stack_used:,} used" if ram.stack_used is not UNSET else ""
    table.add("RAM: stack", number_text(ram.stack), f"maximum, including library functions{used}")
    if program.stream is not None:
        count = sum(layer.rows is not None for layer in program.layers)
        how = "as they arrive" if program.options.io != "arena" else "one by one"
        taken, unit = longest(program, cycles), "cycles"
        if taken is None:
            taken, unit = longest(program, instructions), "instructions"
        note = f"{unit}, estimated; {count} streamed layers compute rows {how}"
        what = "longest push" if program.options.io == "rows" else "longest row"
        table.add(what, number_text(taken, unknown="unknown"), note)
    table.add("flash: weights", number_text(flash.weights), program.options.weights_section)
    table.add(
        "flash: code",
        number_text(flash.code),
        f"at {program.options.compiler_flag}, with layer descriptions",
    )
    note = "C library functions that the code calls, without startup code"
    table.add("flash: library", number_text(flash.library), note)
    if flash.padding:
        table.add("flash: padding", number_text(flash.padding), "for alignment")
    table.add("MACs", number_text(report.macs), _describe_pruning(report))
    if (sliding := report.sliding) is not None:
        share = 100 * sliding.macs / max(sliding.window_macs, 1)
        note = f"new frames per run, of {sliding.frames} in the window: {share:.1f} % of its "
        note += f"{sliding.window_macs:,} MACs; from run {sliding.warmup_runs} on, outputs depend only on "
        note += "frames that were passed in"
        table.add("frames", number_text(sliding.step), note)
    sums = report.accumulators
    if sums.largest_layer:
        unproved = ", ".join(sums.unproved_layers)
        note = f"of 2^{sums.limit.bit_length() - 1} in {sums.largest_layer}: "
        note += f"not proved for {unproved}" if unproved else "no overflow possible"
        if sums.wrapping_layers:
            note += f"; wraps as in the reference: {', '.join(sums.wrapping_layers)}"
        table.add("largest accumulator", number_text(sums.largest), note)
    console.show(table, header=False)


def print_memories(report: BuildReport) -> None:
    """Print the usage of the target's memories, if it defines any."""
    if not report.memories:
        return
    columns = [TableColumn("memory"), number("cycles", rank=2), number("context"), number("constants")]
    columns += [number("copied from", rank=1), number("used"), number("size"), number("%")]
    table = Table("memories of the target", columns)
    for memory in report.memories:
        figures = (memory.cycles, memory.context, memory.constants, memory.loaded, memory.used, memory.size)
        table.add(memory.name, *map(number_text, figures), f"{100 * memory.used / memory.size:.1f}")
    console.show(table)


def _describe_pruning(report: BuildReport) -> str:
    """Return a line about the pruned channels."""
    channels = sum(pruned.channels for pruned in report.pruned)
    saved = sum(pruned.macs_before - pruned.macs_after for pruned in report.pruned)
    return f"{saved:,} fewer: {channels:,} channels are constant or unread" if channels else ""
