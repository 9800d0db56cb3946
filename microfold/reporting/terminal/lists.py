"""Lists of operators, kernels, passes and Pareto-optimal builds in the text output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from microfold.codegen.names import Namer
from microfold.options import Options
from microfold.passes.kinds import Section
from microfold.reporting.schema import Tradeoff
from microfold.reporting.tables import Table, TableColumn, number
from microfold.reporting.terminal.figures import console, number_text, print_cycles_note
from microfold.target import Target


def print_inspection(inspection: dict[str, Any]) -> None:
    """Print operators, inputs, outputs and problems of a model."""
    columns = (TableColumn(""), TableColumn("name"), TableColumn("type"), TableColumn("quantisation"))
    ends = Table(f"{inspection['model']}: inputs and outputs", columns)
    for kind in ("inputs", "outputs"):
        for port in inspection[kind]:
            ends.add(kind[:-1], port["name"], port["type"], port["quantization"])
    console.show(ends)
    console.print()
    columns = (number("#"), TableColumn("operator"), TableColumn("tensor"), TableColumn("inputs", rank=2))
    columns += (TableColumn("output", rank=1), number("MACs"), TableColumn("supported"))
    table = Table("operators", columns)
    namer = Namer()
    for index, row in enumerate(inspection["operators"]):
        supported = "yes" if row["problem"] is None else f"no: {row['problem']}"
        tensor = namer.unique(row["tensor"], row["operator"])
        cells = (row["operator"], tensor, ", ".join(row["inputs"]), ", ".join(row["outputs"]))
        table.add(str(index), *cells, number_text(row["macs"] or 0), supported)
    console.show(table)
    console.print(f"{len(inspection['operators'])} operators, {number_text(inspection['macs'])} MACs")
    for problem in inspection["problems"]:
        console.print(f"not supported: {problem}")
    for found in inspection["sliding"]:
        frames = f"{found['step']} of {found['frames']} frames"
        console.print(
            f"with --sliding {found['axis']}: {number_text(found['macs'])} MACs for a run with {frames}"
        )


def print_tradeoffs(front: Sequence[Tradeoff], target: Target) -> None:
    """Print the Pareto-optimal builds of a model: figures and options, one line each."""
    columns = (number("RAM"), number("flash"), number("instructions"), number("cycles", rank=1))
    table = Table("tradeoffs", (*columns, TableColumn("options of build")))
    for each in front:
        numbers = (each.ram, each.flash, each.estimated_instructions, each.estimated_cycles)
        table.add(*map(number_text, numbers), each.arguments)
    console.show(table)
    console.print("No selection of kernels for whole tensors is faster within these limits. RAM: arena and")
    console.print("state; flash: constants and estimated code; time: estimated. Streaming may need less RAM.")
    _print_cycles_note(target)


def _print_cycles_note(target: Target) -> None:
    if target.cycle_model is not None:
        print_cycles_note({target.name: target.cycle_model.error})


def print_kernels(layers: Sequence[dict[str, Any]], options: Options, target: Target) -> None:
    """Print every variant of every candidate of every layer, the chosen one first."""
    columns = (number("#"), TableColumn("layer"), TableColumn("operator", rank=2), TableColumn("kernel"))
    columns += (TableColumn("variant", rank=1), number("instructions", rank=4), number("cycles"))
    measured = any(
        v["measured_cycles"] is not None for r in layers for c in r["candidates"] for v in c["variants"]
    )
    columns += (number("measured cycles"),) if measured else ()
    columns += (number("constants", rank=3), number("scratch", rank=3))
    table = Table("kernels", (*columns, TableColumn("rejected because")))
    for index, layer in enumerate(layers):
        heading = (str(index), layer["name"], layer["op"])
        for position, candidate in enumerate(layer["candidates"]):
            chosen = position == 0 and candidate["cost"] is not None
            name = f"{candidate['kernel']} *" if chosen else candidate["kernel"]
            if not candidate["variants"]:
                table.add(*heading, name, *[""] * (6 if measured else 5), candidate["reason"])
                heading = ("", "", "")
            for variant in candidate["variants"]:
                choices = ", ".join(f"{key} {_choice(value)}" for key, value in variant["choices"].items())
                keys = ("cost", "cycles", *(["measured_cycles"] if measured else []), "bytes", "scratch")
                numbers = (f"{variant[key]:,.0f}" if variant[key] is not None else "no" for key in keys)
                table.add(*heading, name, choices, *numbers, variant["reason"] or "")
                name, heading = "", ("", "", "")
    console.show(table)
    rule = f"best selection for the whole model by the objective of --optimize {options.optimize}"
    if options.objective:
        rule = f"best selection for the whole model by --objective {options.objective}"
    if options.flash is not None or options.ram is not None:
        rule += ", within the limits"
    console.print(f"* selected: {rule}")
    _print_cycles_note(target)


def _choice(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def print_passes(rows: Sequence[Mapping[str, Any]], sections: Sequence[Section]) -> None:
    """Print passes, and the sections of the pipeline that have them.

    Args:
        rows: rows of ``microfold passes --json``.
        sections: sections to list.
    """
    listed = Table(
        "sections of the default pipeline, in the order of execution", (TableColumn(""), TableColumn(""))
    )
    for section in sections:
        listed.add(section.name, section.purpose)
    console.show(listed, header=False)
    console.print()
    columns = (
        TableColumn("pass"),
        TableColumn("section", rank=3),
        number("level"),
        TableColumn("position", rank=2),
    )
    columns += (TableColumn("purpose"),)
    columns += (TableColumn("options", rank=1),)
    table = Table("passes", columns)
    for row in rows:
        level = "mandatory" if row["mandatory"] else str(row["opt_level"])
        places = ", ".join(map(str, row["places"]))
        section = ", ".join(row["sections"])
        table.add(row["name"], section, level, places, row["summary"], row["options"])
    console.show(table)
    console.print("position: position in the default pipeline")
