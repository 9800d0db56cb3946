"""Text output of `microfold build` and `microfold export`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from microfold.program import Program
from microfold.reporting.int8_size import int8_size
from microfold.reporting.schema import BuildReport
from microfold.reporting.terminal.figures import (
    console,
    cycles_error,
    print_layers,
    print_memories,
    print_memory,
)
from microfold.reporting.terminal.verify import print_deviations
from microfold.simulate.toolchain import ARM_COMPILER
from microfold.verification.measure import lacks_c_library


def print_build(program: Program, report: BuildReport, folder: Path) -> None:
    """Print a summary of a build, a row for each layer, and the calls for the firmware."""
    print_layers(report, instructions=False)
    _print_estimate(report)
    print_memory(program, report)
    print_memories(report)
    _print_int8_size(program)
    if report.relaxed is not None:
        for change in report.relaxed.changes:
            console.print(f"relaxed numerics: {change.where}: {change.change}")
        print_deviations(report.relaxed.outputs, report.relaxed.input_sets)
    if report.labels_ignored is not None:
        console.print(f"labels of the model are ignored: {report.labels_ignored}")
    name = program.name
    console.print(f"\nWritten to {folder}. In your firmware:\n")
    given = f", weights, {name.upper()}_WEIGHTS_SIZE" if program.options.weights == "blob" else ""
    section = f"{name.upper()}_CONTEXT_SECTION " if program.regions is not None else ""
    lines = [
        f'#include "{name}.h"',
        f"static {section}{name}_context network;",
        f"{name}_init(&network{given});",
    ]
    arena, holder, result = "", "&network", "&network"
    if program.options.split:
        names = [f"arena_{index + 1}" if index else "arena" for index in range(len(program.arena_parts))]
        for each in reversed(names):
            place = section.replace("CONTEXT", each.upper())
            lines.insert(2, f"static {place}{name}_{each} {each}; /* can be shared in a union */")
        arena = "".join(f", &{each}" for each in names)
        holder = f"&{names[program.arena_part(program.inputs[0].offset)[0]]}" if program.inputs else "&arena"
        result = f"&{names[program.arena_part(program.outputs[0].offset)[0]]}"
    lines += run_lines(program, arena, holder, result)
    for line in lines:
        console.print(f"    {line}", soft_wrap=True)
    if fetched := sum(layer.fetched for layer in report.layers):
        console.print(
            f"\nDefine {name}_prefetch and {name}_prefetch_wait, see {name}.h: they copy {fetched:,} bytes "
            "of constants to the arena in each run.",
        )
    if program.options.taps:
        console.print(
            f"\nDefine void {name}_tap_write(const void *bytes, uint32_t size), and pass its bytes to "
            "`microfold diff`. Sizes are without taps.",
        )
    for library in report.libraries:
        functions = ", ".join(library.functions)
        console.print(f"\nLink with {library.name}, which provides {functions}.")
    _print_excess(program, report)
    _print_unmeasured(program, report)


def print_export(program: Program, report: BuildReport, folder: Path, files: Sequence[str]) -> None:
    """Print the footprint of a package, and its files."""
    print_memory(program, report)
    console.print(f"\nWritten to {folder}; its README.md describes how to add it to a project:\n")
    for name in files:
        console.print(f"    {name}", soft_wrap=True)
    _print_excess(program, report)
    _print_unmeasured(program, report)


def _print_int8_size(program: Program) -> None:
    """Print the estimated need of a float32 model in int8."""
    size = int8_size(program)
    if size is not None:
        console.print(
            f"in int8, by the sizes of the tensors: about {_rounded(size.weights)} bytes of weights (twice "
            f"for some fast kernels) and {_rounded(size.arena)} of arena; see `microfold quantize`"
        )


def _rounded(size: int) -> str:
    """Return a size with two significant digits, because it is an estimate."""
    return f"{float(f'{size:.2g}'):,.0f}"


def _print_excess(program: Program, report: BuildReport) -> None:
    """Print a notice if constants and measured code exceed the limit, which was checked by estimates."""
    limit, code = program.options.flash, report.flash.code
    if limit is None or code is None:
        return
    size = report.flash.weights + code
    if size > limit:
        console.print(
            f"\nConstants and code have {size:,} bytes, over the limit of {limit:,}: the limit "
            "applies to estimated code. To stay below it, build again with "
            f"--flash {max(2 * limit - size, 0)}."
        )


def _print_unmeasured(program: Program, report: BuildReport) -> None:
    """Print why figures are missing."""
    compiler = program.target.compiler
    if shutil.which(compiler) is None:
        package = " (on Debian and Ubuntu: apt install gcc-arm-none-eabi)" if compiler == ARM_COMPILER else ""
        text = f"Code size and stack require {compiler}, which is not on the PATH{package}."
    elif report.flash.code is None and report.libraries:
        headers = ", ".join(header for library in report.libraries for header in library.headers)
        text = f"Code size and stack require {headers}: pass the folder with --external-flags."
    elif report.flash.code is None and lacks_c_library(program.target):
        package = (
            " (on Debian and Ubuntu: apt install libnewlib-arm-none-eabi)" if compiler == ARM_COMPILER else ""
        )
        text = f"Code size and stack were not measured: {compiler} has no C library{package}."
    elif report.flash.code is None:
        text = f"Code size and stack require ELF files, which {compiler} does not write."
    elif report.ram.stack is None:
        text = f"The stack requires code for Cortex-M that {compiler} links with a C library, and objdump."
    else:
        return
    console.print(f"\n{text}")


def _print_estimate(report: BuildReport) -> None:
    """Print the estimated cost of one run."""
    if report.estimated_instructions is None:
        return
    text = f"{report.estimated_instructions:,} instructions"
    if report.estimated_cycles is not None:
        error = cycles_error(report.cycles_error)
        text += f" and {report.estimated_cycles:,} cycles (timing model {error}, on top of the error of "
        text += "the instruction estimate; wait states, caches and buses excluded)"
    console.print(f"{text} per run, estimated")
    if report.kernels_proved:
        console.print("No selection of kernels is faster within this flash and arena (proved)")


def run_lines(program: Program, arena: str, holder: str, result: str) -> list[str]:
    """Return C code that runs a model once.

    Args:
        arena: arguments after the context in calls: arenas of the caller.
        holder, result: addresses of the objects that contain inputs and outputs.
    """
    name, lines = program.name, list[str]()
    if program.options.io == "caller":
        ports = [f"input_{i}" for i in range(len(program.inputs))]
        ports += [f"output_{i}" for i in range(len(program.outputs))]
        lines.append(f"{name}_run(&network{arena}, {', '.join(ports)});")
    elif program.options.io == "rows":
        lines.append(f"{name}_begin(&network);")
        written = (i for i in range(len(program.inputs)) if i != program.pushed_input)
        lines += [f"/* fill {name}_input_{i}({holder}) */" for i in written]
        lines.append(f"while ({name}_push_rows(&network{arena}, row) == 0) {{ /* the next row */ }}")
        lines.append(f"/* read {name}_output_0({result}) */")
    else:
        lines.append(f"/* fill {name}_input_0({holder}) */")
        lines.append(f"{name}_run(&network{arena});")
        lines.append(f"/* read {name}_output_0({result}) */")
    return lines
