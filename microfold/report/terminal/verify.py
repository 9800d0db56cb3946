"""What verifications print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from microfold.program import Program
from microfold.report.data import Report, deviation_report
from microfold.report.tables import Column, Table, number
from microfold.report.terminal.figures import console, number_text

if TYPE_CHECKING:
    from microfold.verification.verify import Verification


def print_verify_suite(reports: Sequence[Report]) -> None:
    """A row per model, target and level: whether all bits are the reference's."""
    columns = (Column("model"), Column("target"), Column("level"), Column("exact"), number("tensors"))
    table = Table("suite: tensors against the reference", (*columns, Column("where not")))
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


def first_line(report: Report) -> str:
    return str(report["error"]).splitlines()[0]


def print_failures(reports: Sequence[Report]) -> None:
    failed = sum("error" in report for report in reports)
    console.print(
        f"{failed} of {len(reports)} cannot be compiled or run" if failed else "all were compiled and run"
    )


def print_verification(program: Program, result: Verification, *, every_layer: bool) -> None:
    """One line if all is well, else the first differing layer, or all of them."""
    subject = f"{program.name} on {program.target.name}"
    if result.exact:
        console.print(
            f"{subject}: exact: {result.tensors} tensors over {result.inputs} input sets equal the reference",
        )
        for label in result.unchecked:
            console.print(
                f"not checked: {label!r}: nothing here tells what it computes; "
                "what follows was checked on its results",
            )
        if result.cut_short:
            limit = program.options.max_iterations
            console.print(
                f"stopped: with {result.cut_short} of {result.inputs} input sets a loop would have run more "
                f"than {limit} times; outputs are those after {limit} (--max-iterations)"
            )
        print_deviations([deviation_report(d) for d in result.deviations], result.inputs)
        return
    names = [layer.name for layer in program.layers]
    for d in result.differences if every_layer else result.differences[:1]:
        # Behind the layers: an output as a whole.
        name = names[d.layer] if d.layer < len(names) else d.name
        console.print(
            f"{subject}: layer {d.layer} {name!r} differs in {d.count} elements, "
            f"by {d.largest:g} at most (input set {d.call})",
        )


def print_deviations(deviations: Sequence[Report], inputs: int) -> None:
    """How far relaxed numerics move each output."""
    for d in deviations:
        steps = "" if d["largest_steps"] is None else f"{d['largest_steps']} steps, "
        console.print(
            f"relaxed numerics: output {d['output']} {d['name']!r} differs from the imported model's in "
            f"{d['changed']:,} of {d['elements']:,} elements, by {steps}{d['largest']:.6g} at most, "
            f"over {inputs} input sets",
        )
