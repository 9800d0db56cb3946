"""Text output of `microfold diff`."""

from __future__ import annotations

from collections.abc import Iterator

from microfold.codegen.layout import label_text
from microfold.codegen.tensor_trace import FORMAT, Role
from microfold.program import Program
from microfold.reporting.console import Output
from microfold.reporting.diff import TraceComparison, build_text
from microfold.reporting.tables import Table, TableColumn, number
from microfold.verification.tensor_trace.diagnosis import Fault, RunResult, context_offset

# Length of the longest bar of a profile, in characters.
_BAR = 30
_SHOWN_DAMAGES = 10
_OF_LAYERS = (Role.LAYER_INPUT, Role.LAYER_OUTPUT)
_console = Output()


def print_diff(comparison: TraceComparison) -> None:
    """Print a line for each run, details of the faults, and the lost records."""
    program = comparison.program
    build = build_text(comparison.build)
    _console.print(f"{program.name} for {program.target.name}, build {build}: {len(comparison.runs)} runs")
    for result in comparison.runs:
        _print_run(program, result)
    for line in _losses(comparison):
        _console.print(line)


def _print_run(program: Program, result: RunResult) -> None:
    what = f"run {result.run.number}"
    count = f"{result.tensors} tensors"
    if result.faults:
        first = result.faults[0]
        _console.print(f"{what}: wrong: {_headline(program, first)}")
        for line in (*_elements_text(first), *_advice(program, first)):
            _console.print(f"    {line}")
        for fault in result.faults[1:]:
            _console.print(f"  also wrong: {_headline(program, fault)}")
    else:
        _console.print(f"{what}: {count} equal the reference" if result.tensors else f"{what}: not compared")
    if result.missing:
        cause = "" if result.run.ended else "; the run was aborted, or the rest was lost"
        _console.print(f"  {len(result.missing)} records of this run are missing{cause}")
    for reason in dict.fromkeys(result.unchecked.values()):
        layers = [program.layers[n].name for n, why in result.unchecked.items() if why == reason]
        _console.print(f"  not compared: {', '.join(layers)}: {reason}")


def _layer_text(program: Program, layer: int) -> str:
    return f"layer {layer} ({program.layers[layer].name})"


def _reader(program: Program, fault: Fault) -> str:
    if fault.layer is not None:
        return _layer_text(program, fault.layer)
    return "the end of the run" if fault.role is Role.MODEL_OUTPUT else "the start of the run"


def _headline(program: Program, fault: Fault) -> str:
    if fault.kind == "kernel" and fault.layer is not None:
        kernel = program.layers[fault.layer].kernel.name
        return f"{_layer_text(program, fault.layer)}, kernel {kernel}, computes a wrong result"
    if fault.written_by is not None:
        what = f"the result of {_layer_text(program, fault.written_by)}"
    else:
        what = "a state" if fault.buffer.region == "state" else "an input"
        what += f" {label_text(fault.tensor.name)}"
    if fault.kind == "either":
        return f"{what} was wrong when {_reader(program, fault)} read it"
    return f"{what} was overwritten before {_reader(program, fault)} read it"


def _elements_text(fault: Fault) -> list[str]:
    elements = fault.elements
    if elements is None:
        return ["the checksum differs; a trace of the tensors themselves would show which elements"]
    expected = "written" if fault.kind == "memory" else "the reference on the same inputs"
    actual = "device" if fault.kind == "kernel" else "read"
    return [
        f"{elements.count:,} of {elements.size:,} elements differ, first {list(elements.first)}: "
        f"{actual} {elements.actual}, {expected} {elements.expected}"
    ]


def _advice(program: Program, fault: Fault) -> list[str]:
    """Return lines that explain a fault and say where to look."""
    offset = context_offset(program, fault)
    if fault.kind == "kernel":
        place = f"; the element is at byte {offset} of the context" if offset is not None else ""
        if fault.layer is not None and program.layers[fault.layer].blocks:
            place = f" (the hook {program.name.upper()}_INNER_DONE runs inside the layer){place}"
        return [
            "the layer read the right bytes: the fault is in its code or its constants, or other code wrote "
            f"to its memory while it ran{place}",
            "if `microfold verify` with the same options is exact, check the compiler's flags, flash, stack "
            "and interrupts",
        ]
    if fault.kind == "either":
        line = "its record is missing, so it may have been wrong from the start"
    elif fault.role is Role.STATE:
        line = "it was right after the run before, or after init or reset"
    else:
        first = 0 if fault.written_by is None else fault.written_by + 1
        between = ", ".join(layer.name for layer in program.layers[first : fault.layer])
        line = f"it was right when it was written; layers that have run since: {between or 'none'}"
    lines = [f"{line}; hooks, interrupts, DMA and other tasks may also have written there"]
    if offset is not None:
        lines.append(f"a watchpoint at byte {offset} of the context shows which code writes there")
    return lines


def _losses(comparison: TraceComparison) -> Iterator[str]:
    """Yield lines about the parts of the dump that could not be used."""
    parser = comparison.dump.parser
    names = [layer.name for layer in comparison.program.layers]
    for damage in parser.damaged[:_SHOWN_DAMAGES]:
        own = damage.role in _OF_LAYERS and damage.build == comparison.build
        layer = names[damage.layer] if own and damage.layer < len(names) else ""
        what = " ".join(filter(None, [damage.role.name.lower().replace("_", " "), layer]))
        yield f"damaged record at byte {damage.offset:,}: {what} of run {damage.run}: {damage.reason}"
    if len(parser.damaged) > _SHOWN_DAMAGES:
        yield f"and {len(parser.damaged) - _SHOWN_DAMAGES:,} more damaged records"
    if parser.total > parser.whole:
        yield f"{parser.total - parser.whole:,} of {parser.total:,} bytes are not part of complete records"
    for build, found in comparison.dump.builds.items():
        if build != comparison.build:
            yield f"{found.records:,} records of another build, {build_text(build)}, were not compared"
    if parser.other_formats:
        formats = ", ".join(map(str, sorted(parser.other_formats)))
        yield f"records of format {formats} were skipped: this version reads format {FORMAT}"


def print_profile(comparison: TraceComparison) -> None:
    """Print the ticks of every layer with bars, next to the instructions that the cost model estimates."""
    profile = comparison.profile
    if profile is None:
        macro = comparison.program.name.upper()
        _console.print(
            f"no profile: the firmware has no clock for taps; define {macro}_TAP_TICKS() in its hooks"
        )
        return
    columns = [
        number("#"),
        TableColumn("layer"),
        TableColumn("kernel", rank=2),
        number("ticks"),
        number("share"),
    ]
    columns += [TableColumn("", rank=1), number("est. instructions", rank=3)]
    columns += [number("ticks per instruction", rank=4)]
    table = Table(f"ticks of a layer, mean of {profile.runs} runs", columns)
    longest = max(layer.share or 0.0 for layer in profile.layers)
    for layer, ticks in zip(comparison.program.layers, profile.layers, strict=True):
        row = [str(layer.index), layer.name, layer.kernel.name]
        if ticks.mean is None or ticks.share is None:
            table.add(*row, "missing", "", "", "", "")
            continue
        estimate = layer.estimated_instructions
        bar = "#" * round(_BAR * ticks.share / longest)
        ratio = f"{ticks.mean / estimate:.2f}" if estimate else ""
        instructions = f"{estimate:,}" if estimate is not None else "unknown"
        table.add(*row, f"{ticks.mean:,.0f}", f"{ticks.share:.1%}", bar, instructions, ratio)
    _console.show(table)
    _console.print(f"{profile.total:,.0f} ticks in all layers of a run")
