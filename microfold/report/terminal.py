"""What the command line prints for people."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from microfold.codegen.names import Namer
from microfold.options import ALIGN, Options
from microfold.program import Program
from microfold.report.console import Output
from microfold.report.data import Report, deviation_report
from microfold.report.rows import longest
from microfold.report.tables import Column, Table, number
from microfold.simulate.toolchain import ARM_COMPILER
from microfold.target import Target
from microfold.verification.benchmark.suite import Row
from microfold.verification.verify import Verification

_console = Output()


def _number(value: int | float | None, *, unknown: str = "not measured") -> str:
    return unknown if value is None else f"{value:,}"


def print_build(program: Program, report: Report, folder: Path) -> None:
    """The summary of a build, a row per layer, and how to call the result."""
    _print_layers(report, instructions=False)
    _print_estimate(report)
    _print_memory(program, report)
    _print_memories(report)
    if report["relaxed"] is not None:
        for change in report["relaxed"]["changes"]:
            _console.print(f"relaxed numerics: {change['where']}: {change['change']}")
        _print_deviations(report["relaxed"]["outputs"], report["relaxed"]["input_sets"])
    if report["labels_ignored"] is not None:
        _console.print(f"labels of the model are ignored: {report['labels_ignored']}")
    name = program.name
    _console.print(f"\nWritten to {folder}. In your firmware:\n")
    given = f", weights, {name.upper()}_WEIGHTS_SIZE" if program.options.weights == "blob" else ""
    section = f"{name.upper()}_CONTEXT_SECTION " if program.regions is not None else ""
    lines = [
        f'#include "{name}.h"',
        f"static {section}{name}_context network;",
        f"{name}_init(&network{given});",
    ]
    arena, holder = "", "&network"
    if program.options.split:
        section = section.replace("CONTEXT", "ARENA")
        lines.insert(2, f"static {section}{name}_arena arena; /* of other networks, too, in a union */")
        arena, holder = ", &arena", "&arena"
    if program.options.io == "caller":
        ports = [f"input_{i}" for i in range(len(program.inputs))]
        ports += [f"output_{i}" for i in range(len(program.outputs))]
        lines.append(f"{name}_run(&network{arena}, {', '.join(ports)});")
    elif program.options.io == "rows":
        lines.append(f"{name}_begin(&network);")
        written = (i for i in range(len(program.inputs)) if i != program.pushed_input)
        lines += [f"/* fill {name}_input_{i}({holder}) */" for i in written]
        lines.append(f"while ({name}_push_rows(&network{arena}, row) == 0) {{ /* the next row */ }}")
        lines.append(f"/* read {name}_output_0({holder}) */")
    else:
        lines.append(f"/* fill {name}_input_0({holder}) */")
        lines.append(f"{name}_run(&network{arena});")
        lines.append(f"/* read {name}_output_0({holder}) */")
    for line in lines:
        _console.print(f"    {line}", soft_wrap=True)
    if fetched := sum(layer["fetched"] for layer in report["layers"]):
        _console.print(
            f"\nDefine {name}_prefetch and {name}_prefetch_wait, see {name}.h: they bring {fetched:,} bytes "
            "of constants into the arena in each run.",
        )
    if program.options.taps:
        _console.print(
            f"\nDefine void {name}_tap_write(const void *bytes, uint32_t size); what it gets is for "
            "`microfold diff`. Sizes are those without taps.",
        )
    for library in report["libraries"]:
        functions = ", ".join(library["functions"])
        _console.print(f"\nLink {library['name']}, for {functions}.")
    _print_unmeasured(program, report)


def print_export(program: Program, report: Report, folder: Path, files: Sequence[str]) -> None:
    """The footprint of a package, and its files."""
    _print_memory(program, report)
    _console.print(f"\nWritten to {folder}; its README.md says how a project adds it:\n")
    for name in files:
        _console.print(f"    {name}", soft_wrap=True)
    _print_unmeasured(program, report)


def _print_unmeasured(program: Program, report: Report) -> None:
    """Why figures are missing."""
    compiler = program.target.compiler
    if shutil.which(compiler) is None:
        package = " (on Debian and Ubuntu: apt install gcc-arm-none-eabi)" if compiler == ARM_COMPILER else ""
        text = f"Code size and stack need {compiler}, which is not on the PATH{package}."
    elif report["flash"]["code"] is None and report["libraries"]:
        headers = ", ".join(header for library in report["libraries"] for header in library["headers"])
        text = f"Code size and stack need {headers}: say with --external-flags where they are."
    elif report["flash"]["code"] is None:
        text = f"Code size and stack are not read from what {compiler} writes: it is no ELF file."
    elif report["ram"]["stack"] is None:
        text = f"The stack is read off code for Cortex-M that {compiler} links with a C library, by objdump."
    else:
        return
    _console.print(f"\n{text}")


def _print_layers(report: Report, *, instructions: bool) -> None:
    columns = [number("#"), Column("layer"), Column("operator", rank=3), Column("kernel", rank=1)]
    columns += [Column("output", rank=4), number("MACs"), number("weights", rank=2)]
    columns += (
        [number("instructions"), number("per MAC", rank=2)] if instructions else [number("est. instructions")]
    )
    if report["estimated_cycles"] is not None:
        columns.append(number("est. cycles"))
    if report["least_cycles"] is not None:
        columns += [number("CPI", rank=3), number("limit", rank=3)]
    if report["measured_on"] is not None:
        columns.append(number("measured cycles"))
    table = Table(f"{report['model']} for {report['target']}", columns)
    for index, layer in enumerate(report["layers"]):
        op = " + ".join([layer["op"], *layer["fused"]])
        output = f"{layer['output']['dtype']}{layer['output']['shape']}"
        row = [str(index), layer["name"], op, layer["kernel"], output]
        row += [_number(layer["macs"]), _number(layer["weights"])]
        if instructions:
            count = layer["instructions"]
            row += [_number(count), f"{count / layer['macs']:.2f}" if layer["macs"] else ""]
        else:
            row.append(_number(layer["estimated_instructions"], unknown="unknown"))
        if report["estimated_cycles"] is not None:
            row.append(_number(layer["estimated_cycles"]))
        if report["least_cycles"] is not None:
            row += _per_instruction(layer)
        if report["measured_on"] is not None:
            row.append(_number(layer["measured_cycles"], unknown="no"))
        table.add(*row)
    _console.show(table)
    _print_measured(report)


def _per_instruction(figures: Report) -> list[str]:
    """Cycles per instruction, as they are estimated, and what they would be if no instruction waited."""
    count = figures["instructions"]
    keys = ("estimated_cycles", "least_cycles")
    return [f"{figures[key] / count:.2f}" if count else "" for key in keys]


def _print_measured(report: Report) -> None:
    """Which figures of a build are measured."""
    if report["measured_on"] is None:
        return
    found = [layer["measured_cycles"] for layer in report["layers"] if layer["measured_cycles"] is not None]
    _console.print(
        f"measured on {report['measured_on']}: {len(found)} of {len(report['layers'])} layers, "
        f"{sum(found):,} cycles; the others by estimates"
    )


def _print_estimate(report: Report) -> None:
    """What one run needs by the cost model."""
    if report["estimated_instructions"] is None:
        return
    text = f"{report['estimated_instructions']:,} instructions"
    if report["estimated_cycles"] is not None:
        text += f" and {report['estimated_cycles']:,} cycles without wait states"
    _console.print(f"{text} for one run: estimates, nothing was run")


def _print_memory(program: Program, report: Report) -> None:
    ram, flash = report["ram"], report["flash"]
    table = Table("", (Column(""), number("bytes"), Column("")))
    scratch = max((layer["scratch"] for layer in report["layers"]), default=0)
    proved = ram["arena"] == ram["arena_bound"]
    kept = "these kernels" if program.stream is None else "these kernels and this order of rows"
    least = f"the least for {kept}" if proved else f"{ram['arena_bound']:,} at least"
    note = f"{least}; largest scratch {scratch:,}"
    if program.options.align > ALIGN[0]:
        note += f"; all at multiples of {program.options.align}"
    table.add("RAM: arena", _number(ram["arena"]), note)
    table.add("RAM: state", _number(ram["state"]), "kept from run to run")
    used = f"; {ram['stack_used']:,} were used" if "stack_used" in ram else ""
    table.add("RAM: stack", _number(ram["stack"]), f"at most, library functions included{used}")
    if program.stream is not None:
        count = sum(layer.rows is not None for layer in program.layers)
        how = "as they come" if program.options.io != "arena" else "one after the other"
        note = f"instructions, estimated; {count} layers compute rows {how}"
        what = "longest push" if program.options.io == "rows" else "longest row"
        table.add(what, _number(longest(program), unknown="unknown"), note)
    table.add("flash: weights", _number(flash["weights"]), program.options.weights_section)
    table.add(
        "flash: code", _number(flash["code"]), f"at {program.options.compiler_flag}, with layer descriptions"
    )
    note = "C library functions that it calls; not startup code"
    table.add("flash: library", _number(flash["library"]), note)
    if flash["padding"]:
        table.add("flash: padding", _number(flash["padding"]), "between all of these, for alignment")
    table.add("MACs", _number(report["macs"]), _describe_pruning(report))
    if (sliding := report["sliding"]) is not None:
        share = 100 * sliding["macs"] / max(sliding["window_macs"], 1)
        note = f"of the window's {sliding['frames']} in a run: {share:.1f} % of its "
        note += (
            f"{sliding['window_macs']:,} MACs; from run {sliding['warmup_runs']} on, those from before the "
        )
        note += "first one do not count"
        table.add("frames", _number(sliding["step"]), note)
    sums = report["accumulators"]
    if sums["largest_layer"]:
        unproved = ", ".join(sums["unproved_layers"])
        note = f"of 2^{sums['limit'].bit_length() - 1} in {sums['largest_layer']}: "
        note += f"not proved for {unproved}" if unproved else "no overflow possible"
        if sums["wrapping_layers"]:
            note += f"; wraps round like the reference: {', '.join(sums['wrapping_layers'])}"
        table.add("largest accumulator", _number(sums["largest"]), note)
    _console.show(table, header=False)


def _print_memories(report: Report) -> None:
    """How far the target's memories are filled, if it names any."""
    if not report["memories"]:
        return
    columns = [Column("memory"), number("cycles", rank=2), number("context"), number("constants")]
    columns += [number("copied from", rank=1), number("used"), number("size"), number("%")]
    table = Table("memories of the target", columns)
    for memory in report["memories"]:
        keys = ("cycles", "context", "constants", "loaded", "used", "size")
        figures = (_number(memory[key]) for key in keys)
        table.add(memory["name"], *figures, f"{100 * memory['used'] / memory['size']:.1f}")
    _console.show(table)


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
    if report["estimated_cycles"] is not None:
        _console.print(_cycles(report))
    _print_memory(program, report)


def _cycles(report: Report) -> str:
    """Of one run, with what they rest on, and how far that is to be trusted."""
    cycles, error = report["estimated_cycles"], report["cycles_error"]
    each, least = _per_instruction(report)
    text = f"{cycles:,} cycles estimated, {each} per instruction ({least} if none waited for another one)"
    known = f"±{error} %, " if error is not None else ""
    how = f"executed instructions, {known}timing from {report['cycles_source']}"
    return f"{text}, not measured: {how}; without wait states, caches and buses"


def print_bench_summary(reports: Sequence[Report]) -> None:
    """A row per model."""
    columns = [Column("model"), number("MACs", rank=1), number("instructions"), number("per MAC", rank=3)]
    columns += [number("est. cycles", rank=2), number("arena"), number("stack", rank=4), number("weights")]
    columns += [number("code")]
    table = Table(f"one run on {reports[0]['target']}, bytes and instructions", columns)
    for report in reports:
        per_mac = report["instructions_per_mac"]
        ram, flash = report["ram"], report["flash"]
        numbers = (report["macs"], report["instructions"], per_mac, report["estimated_cycles"])
        numbers = (*numbers, ram["arena"], ram["stack"])
        row = [_number(n) for n in (*numbers, flash["weights"], flash["code"])]
        table.add(report["model"], *row)
    _console.show(table)


def print_bench_suite(reports: Sequence[Report]) -> None:
    """A row per model, target and level; those that cannot be compiled say why."""
    columns = (
        Column("model"),
        Column("target"),
        Column("level"),
        number("instructions"),
        number("est. cycles"),
    )
    columns += (
        number("arena"),
        number("stack", rank=2),
        number("weights"),
        number("code"),
        Column("problem", rank=1),
    )
    table = Table("suite: one run, bytes and instructions", columns)
    for report in reports:
        heading = (report["model"], report["target"], report["level"])
        if "error" in report:
            table.add(*heading, *[""] * 6, _first_line(report))
            continue
        ram, flash = report["ram"], report["flash"]
        numbers = (report["instructions"], report["estimated_cycles"], ram["arena"], ram["stack"])
        table.add(*heading, *map(_number, (*numbers, flash["weights"], flash["code"])), "")
    _console.show(table)
    _print_failures(reports)


def print_verify_suite(reports: Sequence[Report]) -> None:
    """A row per model, target and level: whether all bits are the reference's."""
    columns = (Column("model"), Column("target"), Column("level"), Column("exact"), number("tensors"))
    table = Table("suite: tensors against the reference", (*columns, Column("where not")))
    for report in reports:
        heading = (report["model"], report["target"], report["level"])
        if "error" in report:
            table.add(*heading, "not compiled", "", _first_line(report))
            continue
        first = report["first_difference"]
        where = f"layer {first['layer']} {first['name']!r}" if first is not None else ""
        table.add(*heading, "yes" if report["exact"] else "NO", _number(report["tensors"]), where)
    _console.show(table)
    differing = sum("error" not in report and not report["exact"] for report in reports)
    _console.print(f"{differing} of {len(reports)} differ")
    _print_failures(reports)


def _first_line(report: Report) -> str:
    return str(report["error"]).splitlines()[0]


def _print_failures(reports: Sequence[Report]) -> None:
    failed = sum("error" in report for report in reports)
    _console.print(
        f"{failed} of {len(reports)} cannot be compiled or run" if failed else "all were compiled and run"
    )


def print_comparison(rows: Sequence[Row]) -> None:
    """A table per figure: microfold's beside others', and how many times theirs it fits into."""
    for figure in dict.fromkeys(row.figure for row in rows):
        chosen = [row for row in rows if row.figure == figure]
        names = list(dict.fromkeys(name for row in chosen for name in row.peers))
        columns = [Column("target"), Column("model"), number("microfold")]
        for index, name in enumerate(names):
            columns += [number(name, rank=2 * index + 1), number("times", rank=2 * index + 2)]
        table = Table(figure.replace("_", " "), columns)
        for row in chosen:
            cells = [_number(row.ours)]
            for name in names:
                theirs = row.peers.get(name)
                ratio = f"{theirs / row.ours:.2f}" if theirs is not None and row.ours else ""
                cells += [_number(theirs) if theirs is not None else "", ratio]
            table.add(row.target, row.model, *cells)
        _console.show(table)


def print_verification(program: Program, result: Verification, *, every_layer: bool) -> None:
    """One line if all is well, else the first differing layer, or all of them."""
    subject = f"{program.name} on {program.target.name}"
    if result.exact:
        _console.print(
            f"{subject}: exact: {result.tensors} tensors over {result.inputs} input sets equal the reference",
        )
        for label in result.unchecked:
            _console.print(
                f"not checked: {label!r}: nothing here tells what it computes; "
                "what follows was checked on its results",
            )
        if result.cut_short:
            limit = program.options.max_iterations
            _console.print(
                f"stopped: with {result.cut_short} of {result.inputs} input sets a loop would have run more "
                f"than {limit} times; outputs are those after {limit} (--max-iterations)"
            )
        _print_deviations([deviation_report(d) for d in result.deviations], result.inputs)
        return
    names = [layer.name for layer in program.layers]
    for d in result.differences if every_layer else result.differences[:1]:
        # Behind the layers: an output as a whole.
        name = names[d.layer] if d.layer < len(names) else d.name
        _console.print(
            f"{subject}: layer {d.layer} {name!r} differs in {d.count} elements, "
            f"by {d.largest:g} at most (input set {d.call})",
        )


def _print_deviations(deviations: Sequence[Report], inputs: int) -> None:
    """How far relaxed numerics move each output."""
    for d in deviations:
        steps = "" if d["largest_steps"] is None else f"{d['largest_steps']} steps, "
        _console.print(
            f"relaxed numerics: output {d['output']} {d['name']!r} differs from the imported model's in "
            f"{d['changed']:,} of {d['elements']:,} elements, by {steps}{d['largest']:.6g} at most, "
            f"over {inputs} input sets",
        )


def print_inspection(inspection: Report) -> None:
    """Operators, tensors at the ends, and problems."""
    columns = (Column(""), Column("name"), Column("type"), Column("quantisation"))
    ends = Table(f"{inspection['model']}: inputs and outputs", columns)
    for kind in ("inputs", "outputs"):
        for port in inspection[kind]:
            ends.add(kind[:-1], port["name"], port["type"], port["quantization"])
    _console.show(ends)
    _console.print()
    columns = (number("#"), Column("operator"), Column("tensor"), Column("inputs", rank=2))
    columns += (Column("output", rank=1), number("MACs"), Column("supported"))
    table = Table("operators", columns)
    namer = Namer()
    for index, row in enumerate(inspection["operators"]):
        supported = "yes" if row["problem"] is None else f"no: {row['problem']}"
        tensor = namer.unique(row["tensor"], row["operator"])
        cells = (row["operator"], tensor, ", ".join(row["inputs"]), ", ".join(row["outputs"]))
        table.add(str(index), *cells, _number(row["macs"] or 0), supported)
    _console.show(table)
    _console.print(f"{len(inspection['operators'])} operators, {_number(inspection['macs'])} MACs")
    for problem in inspection["problems"]:
        _console.print(f"not supported: {problem}")
    for found in inspection["sliding"]:
        frames = f"{found['step']} of {found['frames']} frames"
        _console.print(f"with --sliding {found['axis']}, {_number(found['macs'])} MACs for a run of {frames}")


def print_tradeoffs(rows: Sequence[Report]) -> None:
    """Ways to compile a model, a line for each: what they take, and the options that lead there."""
    columns = (number("RAM"), number("flash"), number("instructions"), number("cycles", rank=1))
    table = Table("tradeoffs", (*columns, Column("options of build")))
    for row in rows:
        options = [f"--optimize {row['optimize']}"]
        options += [f"--{name} {row[key]}" for name, key in _BUDGETS if row[key] is not None]
        numbers = (row[key] for key in ("ram", "flash", "estimated_instructions", "estimated_cycles"))
        table.add(*map(_number, numbers), " ".join(options))
    _console.show(table)
    _console.print("no way that was tried has less of one and no more of the others; RAM: arena and state;")
    _console.print("flash: constants and an estimate of the kernels' code; time: estimates, nothing was run")


_BUDGETS = (("ram", "ram_budget"), ("flash", "flash_budget"))


def print_kernels(layers: Sequence[Report], options: Options) -> None:
    """Every variant of every candidate of every layer, the chosen one first."""
    columns = (number("#"), Column("layer"), Column("operator", rank=2), Column("kernel"))
    columns += (Column("variant", rank=1), number("instructions"))
    measured = any(
        v["measured_cycles"] is not None for r in layers for c in r["candidates"] for v in c["variants"]
    )
    columns += (number("measured cycles"),) if measured else ()
    columns += (number("constants", rank=3), number("scratch", rank=3))
    table = Table("kernels", (*columns, Column("why not")))
    for index, layer in enumerate(layers):
        heading = (str(index), layer["name"], layer["op"])
        for position, candidate in enumerate(layer["candidates"]):
            chosen = position == 0 and candidate["cost"] is not None
            name = f"{candidate['kernel']} *" if chosen else candidate["kernel"]
            if not candidate["variants"]:
                table.add(*heading, name, *[""] * (5 if measured else 4), candidate["reason"])
                heading = ("", "", "")
            for variant in candidate["variants"]:
                choices = ", ".join(f"{key} {_choice(value)}" for key, value in variant["choices"].items())
                keys = ("cost", *(["measured_cycles"] if measured else []), "bytes", "scratch")
                numbers = (f"{variant[key]:,.0f}" if variant[key] is not None else "no" for key in keys)
                table.add(*heading, name, choices, *numbers, variant["reason"] or "")
                name, heading = "", ("", "", "")
    _console.show(table)
    rule = "the cheapest that the target can run" + (", by what was measured" if measured else "")
    if options.flash is not None:
        rule = "the fastest for all layers together whose constants fit"
        rule += ", of those whose arena fits" if options.ram is not None else ""
    elif options.ram is not None:
        rule = f"what optimize = {options.optimize} takes of those whose arena fits"
    elif options.optimize == "size":
        rule = "the least flash for all layers together"
    _console.print(f"* is chosen: {rule}")


def _choice(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def print_targets(targets: Sequence[Target]) -> None:
    columns = ("name", "description", "features", "simulated board")
    table = Table("targets", [*map(Column, columns)])
    for target in targets:
        table.add(target.name, target.description, ", ".join(sorted(target.features)), target.board)
    _console.show(table)


def print_passes(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = (Column("pass"), number("level"), Column("place", rank=2), Column("what it does"))
    columns += (Column("options", rank=1),)
    table = Table("passes", columns)
    for row in rows:
        level = "mandatory" if row["mandatory"] else str(row["opt_level"])
        places = ", ".join(map(str, row["places"]))
        table.add(row["name"], level, places, row["summary"], row["options"])
    _console.show(table)
    _console.print("place: where the default pipeline runs it")
