"""Report of a build of several models, `<name>_report.json`, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from microfold import __version__
from microfold.codegen.group import arena_size
from microfold.codegen.shared import Shared
from microfold.reporting.console import Output
from microfold.reporting.data import memories_report
from microfold.reporting.group_schema import GroupFlash, GroupRam, GroupReport, ReportedSharedFunction
from microfold.reporting.schema import BuildReport
from microfold.reporting.tables import Table, TableColumn, number
from microfold.reporting.terminal.build import run_lines
from microfold.verification.measure import GroupMeasurement


def group_report(
    shared: Shared, measured: GroupMeasurement | None, reports: Sequence[BuildReport], build_id: str
) -> GroupReport:
    """Return the report; sizes are in bytes, or None if no compiler could measure them.

    Args:
        reports: reports of the models, each built separately.
    """
    programs = shared.programs
    regions = programs[0].regions
    weights = shared.weight_bytes
    together = [weights, measured.kernels, *measured.models] if measured is not None else []
    alone = [(r.flash.weights, r.flash.code, r.flash.library, r.flash.padding) for r in reports]
    return GroupReport(
        microfold_version=__version__,
        build_id=build_id,
        name=shared.name,
        target=programs[0].target.name,
        ram=GroupRam(
            arena=max(program.arena.size for program in programs),
            arena_object=arena_size(programs),
            state=sum(program.state_size for program in programs),
            stack=measured.stack if measured is not None else None,
            apart=sum(program.arena.size + program.state_size for program in programs),
        ),
        flash=GroupFlash(
            weights=weights,
            weights_saved=shared.constants.saved,
            code=tuple(measured.models) if measured is not None else None,
            kernels=measured.kernels if measured is not None else None,
            library=measured.library if measured is not None else None,
            padding=measured.padding if measured is not None else None,
            total=_total([*together, measured.library, measured.padding]) if measured is not None else None,
            apart=_total([part for parts in alone for part in parts]),
        ),
        shared=tuple(
            ReportedSharedFunction(each.rendered.name, function.name, tuple(each.callers))
            for function, each in shared.functions.items()
        ),
        memories=memories_report(regions) if regions is not None else (),
        models=tuple(reports),
    )


def _total(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def print_group(shared: Shared, report: GroupReport, folder: Path) -> None:
    """Print the memory of each model and of all models together, and the calls for the firmware."""
    console = Output()
    columns = [
        TableColumn("model"),
        number("arena"),
        number("state"),
        number("weights"),
        number("code"),
        number("MACs"),
    ]
    table = Table(f"{report.name} for {report.target}", columns)
    code: Sequence[int | None] = report.flash.code or [None] * len(report.models)
    for each, own in zip(report.models, code, strict=True):
        cells = (each.ram.arena, each.ram.state, each.flash.weights, own, each.macs)
        table.add(each.model, *map(_number, cells))
    console.show(table)
    ram, flash = report.ram, report.flash
    table = Table("", (TableColumn(""), number("bytes"), TableColumn("")))
    table.add("RAM: arena", _number(ram.arena_object), "shared: the largest model's arena plus an owner word")
    table.add("RAM: state", _number(ram.state), "kept between runs, in the contexts")
    table.add("RAM: stack", _number(ram.stack), "maximum, for one model at a time")
    table.add("RAM: separate", _number(ram.apart), "arenas and states without sharing")
    saved = f"{flash.weights_saved:,} saved: several models read the same constants"
    table.add("flash: weights", _number(flash.weights), saved if flash.weights_saved else "")
    kernels = f"{len(report.shared)} functions that several models call"
    table.add("flash: kernels", _number(flash.kernels), kernels)
    table.add("flash: total", _number(flash.total), "with library functions and padding")
    table.add("flash: separate", _number(flash.apart), "the models without sharing")
    console.show(table, header=False)
    for memory in report.memories:
        used = f"{memory.used:,} of {memory.size:,} bytes"
        console.print(f"memory {memory.name}: {used}")
    name, first = shared.name, shared.programs[0].name
    console.print(f"\nWritten to {folder}. In your firmware:\n")
    for line in (
        f'#include "{name}.h"',
        f"static {name}_arena arena;",
        f"static {first}_context network;",
        f"{name}_arena_init(&arena);",
        f"{first}_init(&network);",
        f"{first}_arena *taken = {name}_take_{first}(&arena); /* 0 while another network owns it */",
        *run_lines(shared.programs[0], ", taken", "taken", "taken"),
        f"{name}_give_back(&arena);",
    ):
        console.print(f"    {line}", soft_wrap=True)


def _number(value: int | None) -> str:
    return "not measured" if value is None else f"{value:,}"
