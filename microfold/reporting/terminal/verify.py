"""Text output of `microfold verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from microfold.program import Program
from microfold.reporting.data import deviation_report
from microfold.reporting.schema import OutputDeviation
from microfold.reporting.tables import Table, TableColumn, number
from microfold.reporting.terminal.figures import console, number_text

if TYPE_CHECKING:
    from microfold.verification.verify import Verification


def print_verify_suite(reports: Sequence[Mapping[str, Any]]) -> None:
    """Print a row for each model, target and level: whether it is bit-identical to the reference."""
    columns = (
        TableColumn("model"),
        TableColumn("target"),
        TableColumn("level"),
        TableColumn("exact"),
        number("tensors"),
    )
    table = Table("suite: tensors against the reference", (*columns, TableColumn("first difference")))
    for report in reports:
        heading = (report["model"], report["target"], report["level"])
        if "error" in report:
            table.add(*heading, "not compiled", "", first_line(report))
            continue
        first = report["first_difference"]
        where = f"layer {first['layer']} {first['name']!r}" if first is not None else ""
        table.add(*heading, "yes" if report["exact"] else "NO", number_text(report["tensors"]), where)
    console.show(table)
    differing = sum("error" not in report and not report["exact"] for report in reports)
    console.print(f"{differing} of {len(reports)} differ")
    print_failures(reports)


def first_line(report: Mapping[str, Any]) -> str:
    """Return the first line of the error in a report."""
    return str(report["error"]).splitlines()[0]


def print_failures(reports: Sequence[Mapping[str, Any]]) -> None:
    """Print the number of models that cannot be compiled or run."""
    failed = sum("error" in report for report in reports)
    console.print(
        f"{failed} of {len(reports)} cannot be compiled or run" if failed else "all were compiled and run"
    )


def print_verification(program: Program, result: Verification, *, every_layer: bool) -> None:
    """Print one line if all tensors are equal, else the first layer that differs, or all of them."""
    subject = f"{program.name} on {program.target.name}"
    if result.exact:
        console.print(
            f"{subject}: exact: {result.tensors} tensors over {result.inputs} input sets equal the reference",
        )
        for label in result.unchecked:
            console.print(
                f"not checked: {label!r}: it has no reference; later layers were checked on its results",
            )
        if result.cut_short:
            limit = program.options.max_iterations
            console.print(
                f"stopped: for {result.cut_short} of {result.inputs} input sets a loop was stopped after "
                f"{limit} iterations (--max-iterations), so its outputs are unfinished"
            )
        print_deviations([deviation_report(d) for d in result.deviations], result.inputs)
        return
    names = [layer.name for layer in program.layers]
    for d in result.differences if every_layer else result.differences[:1]:
        # Numbers after the last layer are whole outputs.
        name = names[d.layer] if d.layer < len(names) else d.name
        console.print(
            f"{subject}: layer {d.layer} {name!r} differs in {d.count} elements, "
            f"by at most {d.largest:g} (input set {d.call})",
        )


def print_deviations(deviations: Sequence[OutputDeviation], inputs: int) -> None:
    """Print the deviation of each output by relaxed numerics."""
    for d in deviations:
        steps = "" if d.largest_steps is None else f"{d.largest_steps} steps, "
        console.print(
            f"relaxed numerics: output {d.output} {d.name!r} differs from the imported model in "
            f"{d.changed:,} of {d.elements:,} elements, by at most {steps}{d.largest:.6g}, "
            f"over {inputs} input sets",
        )
