"""What the command line prints for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from microfold.kernels.kernel import Site
from microfold.kernels.select import Candidate
from microfold.program import Program
from microfold.report import Report
from microfold.target import Target
from microfold.verify import Verification

# Not a terminal: no wrapping to 80 columns, so that logs and pipes keep whole lines.
_console = Console(width=None if Console().is_terminal else 160, highlight=False)


def _table(title: str, *columns: str) -> Table:
    """A table whose columns marked with ``>`` are aligned to the right."""
    table = Table(title=escape(title), title_justify="left", header_style="bold")
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(name, justify="right" if column.startswith(">") else "left", overflow="fold")
    return table


def _number(value: int | float | None, unit: str = "") -> str:
    return "not measured" if value is None else f"{value:,}{unit}"


def print_build(program: Program, report: Report, folder: Path) -> None:
    """The summary of a build, a row per layer, and how to call the result."""
    _print_layers(report, instructions=False)
    _print_memory(program, report)
    name = program.name
    _console.print(f"\nWritten to {escape(str(folder))}. In your firmware:\n")
    if program.options.io == "caller":
        ports = [f"input_{i}" for i in range(len(program.inputs))]
        ports += [f"output_{i}" for i in range(len(program.outputs))]
        run = f"{name}_run(&network, {', '.join(ports)});"
    else:
        run = (
            f"/* fill {name}_input_0(&network) */ {name}_run(&network); /* read {name}_output_0(&network) */"
        )
    lines = (f'#include "{name}.h"', f"static {name}_context network;", f"{name}_init(&network);", run)
    for line in lines:
        _console.print(f"    {line}", markup=False)
    if report["flash"]["code"] is None:
        _console.print(
            f"\nCode size and stack need {program.target.compiler}, which is not on the PATH "
            "(on Debian and Ubuntu: apt install gcc-arm-none-eabi).",
            markup=False,
        )


def _print_layers(report: Report, *, instructions: bool) -> None:
    columns = ["#", "layer", "operator", "kernel", "output", ">MACs", ">weights"]
    if instructions:
        columns += [">instructions", ">per MAC"]
    table = _table(f"{report['model']} for {report['target']}", *columns)
    for index, layer in enumerate(report["layers"]):
        op = " + ".join([layer["op"], *layer["fused"]])
        output = f"{layer['output']['dtype']}{layer['output']['shape']}"
        row = [str(index), layer["name"], op, layer["kernel"], output]
        row += [_number(layer["macs"]), _number(layer["weights"])]
        if instructions:
            count = layer["instructions"]
            row += [_number(count), f"{count / layer['macs']:.2f}" if layer["macs"] else ""]
        table.add_row(*(escape(cell) for cell in row))
    _console.print(table)


def _print_memory(program: Program, report: Report) -> None:
    ram, flash = report["ram"], report["flash"]
    table = _table("", "", ">bytes", "")
    table.show_header = False
    scratch = max((layer["scratch"] for layer in report["layers"]), default=0)
    note = f"{ram['arena_without_overlap']:,} without overlap at best; largest scratch {scratch:,}"
    table.add_row("RAM: arena", _number(ram["arena"]), note)
    table.add_row("RAM: state", _number(ram["state"]), "kept from run to run")
    table.add_row("RAM: stack", _number(ram["stack"]), "deepest, besides the C library")
    table.add_row("flash: weights", _number(flash["weights"]), program.options.weights_section)
    table.add_row("flash: code", _number(flash["code"]), "at -O2, with layer descriptions")
    table.add_row("MACs", _number(report["macs"]), _describe_pruning(report))
    sums = report["accumulators"]
    if sums["largest_bits"]:
        unproved = ", ".join(sums["unproved_layers"])
        note = f"not proved to fit: {unproved}" if unproved else "the widest sum; proved: none can overflow"
        table.add_row("accumulator bits", _number(sums["largest_bits"]), note)
    _console.print(table)


def _describe_pruning(report: Report) -> str:
    """What was left out, in a line."""
    channels = sum(pruned["channels"] for pruned in report["pruned"])
    saved = sum(pruned["macs_before"] - pruned["macs_after"] for pruned in report["pruned"])
    return f"{saved:,} fewer: {channels:,} channels are constant or not read" if channels else ""


def print_bench(program: Program, report: Report) -> None:
    """Instructions per layer and in total, and memory."""
    _print_layers(report, instructions=True)
    per_mac = report["instructions_per_mac"]
    _console.print(
        f"{report['instructions']:,} instructions for one run"
        + (f", {per_mac:.3f} per MAC" if per_mac is not None else "")
    )
    _print_memory(program, report)


def print_bench_summary(reports: Sequence[Report]) -> None:
    """A row per model."""
    columns = (">MACs", ">instructions", ">per MAC", ">arena", ">stack", ">weights", ">code")
    table = _table(f"one run on {reports[0]['target']}, bytes and instructions", "model", *columns)
    for report in reports:
        per_mac = report["instructions_per_mac"]
        ram, flash = report["ram"], report["flash"]
        numbers = (report["macs"], report["instructions"], per_mac, ram["arena"], ram["stack"])
        row = [_number(n) for n in (*numbers, flash["weights"], flash["code"])]
        table.add_row(escape(report["model"]), *row)
    _console.print(table)


def print_verification(program: Program, result: Verification, *, every_layer: bool) -> None:
    """One line if all is well, else the first differing layer, or all of them."""
    subject = f"{program.name} on {program.target.name}"
    if result.exact:
        _console.print(
            f"{subject}: exact: {result.tensors} tensors over {result.inputs} input sets equal the reference",
            markup=False,
        )
        return
    for d in result.differences if every_layer else result.differences[:1]:
        _console.print(
            f"{subject}: layer {d.layer} {d.name!r} differs in {d.count} elements, "
            f"by {d.largest:g} at most (input set {d.call})",
            markup=False,
        )


def print_inspection(inspection: Report) -> None:
    """Operators, tensors at the ends, and problems."""
    ends = _table(f"{inspection['model']}: inputs and outputs", "", "name", "type", "quantisation")
    for kind in ("inputs", "outputs"):
        for port in inspection[kind]:
            ends.add_row(kind[:-1], escape(port["name"]), escape(port["type"]), port["quantization"])
    _console.print(ends)
    table = _table("operators", "#", "operator", "tensor", "inputs", "output", ">MACs", "supported")
    for index, row in enumerate(inspection["operators"]):
        supported = "yes" if row["problem"] is None else f"no: {row['problem']}"
        cells = (row["operator"], row["tensor"], ", ".join(row["inputs"]), ", ".join(row["outputs"]))
        table.add_row(
            str(index), *(escape(cell) for cell in cells), _number(row["macs"] or 0), escape(supported)
        )
    _console.print(table)
    _console.print(f"{len(inspection['operators'])} operators, {_number(inspection['macs'])} MACs")
    for problem in inspection["problems"]:
        _console.print(f"not supported: {problem}", markup=False)


def print_kernels(layers: Sequence[tuple[Site, Sequence[Candidate]]]) -> None:
    """Every candidate of every layer, the chosen one first."""
    table = _table("kernels", "#", "layer", "kernel", ">estimated instructions", "why not")
    for index, (site, candidates) in enumerate(layers):
        for position, candidate in enumerate(candidates):
            first = position == 0
            cost = f"{candidate.cost:,.0f}" if candidate.cost is not None else ""
            label = f"{site.node.op.name} {site.node.outputs[0].name}" if first else ""
            name = f"{candidate.kernel.name} *" if first and cost else candidate.kernel.name
            table.add_row(
                str(index) if first else "", escape(label), name, cost, escape(candidate.reason or "")
            )
    _console.print(table)
    _console.print("* is chosen: the cheapest that the target can run")


def print_targets(targets: Sequence[Target]) -> None:
    table = _table("targets", "name", "description", "features", "simulated board")
    for target in targets:
        table.add_row(target.name, target.description, ", ".join(sorted(target.features)), target.board)
    _console.print(table)
