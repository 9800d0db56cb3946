"""Macro ``NAME_STACK_SIZE``: maximum stack of a model's calls, and its source."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from microfold.codegen.layout import comment_block, comment_text, doc_block
from microfold.codegen.provenance import Build
from microfold.program import Program

# Maximum stack in bytes. No build for a core in `python -m tests.codegen.sweep` needs more.
STACK_BOUND = 2048


def stack_bound(program: Program, measured: int | None) -> int | None:
    """Return the maximum stack of any call in bytes, or None if it is unknown.

    Args:
        measured: bytes, as `Measurement.stack`. Ignored for a build with taps, because it calls a function
            of the firmware, which is not measured.
    """
    if measured is not None and not program.options.taps:
        return measured
    return STACK_BOUND if program.target.board else None


def compile_command(program: Program) -> str:
    """Return the compiler and the flags that are used to measure the generated code."""
    return " ".join([program.target.compiler, *program.target.cpu_flags, program.options.compiler_flag])


def definition(program: Program, measured: int | None = None) -> str:
    """Return the lines of the header that define the macro, or a comment that says why it is missing.

    Args:
        measured: bytes, as `Measurement.stack`.
    """
    macro = f"{program.name.upper()}_STACK_SIZE"
    size = stack_bound(program, measured)
    if size is None:
        return comment_block([f"{macro} is not defined: the stack size of this build is unknown."])
    if size == measured:
        known = f"It is computed from the machine code of {comment_text(compile_command(program))}"
        known += ". Other compilers and flags need other stack sizes."
    else:
        known = "It was not measured for this build. No tested code needs more"
        known += f", excluding {program.name}_tap_write." if program.options.taps else "."
    text = doc_block(["@brief Maximum stack of a call in bytes, excluding interrupts.", "", known])
    return f"{text}\n#define {macro} {size}"


def state_stacks(build: Build, measured: Iterable[tuple[Program, int | None]]) -> Build:
    """Return the build with measured stack sizes in its headers.

    The build id does not change, because it must not depend on the compiler.

    Args:
        measured: programs of the build, each with its stack in bytes, as `Measurement.stack`.
    """
    files = dict(build.files)
    for program, stack in measured:
        header = f"{program.name}.h"
        unmeasured = definition(program)
        assert files[header].count(unmeasured) == 1, header
        files[header] = files[header].replace(unmeasured, definition(program, stack))
    return replace(build, files=files)
