"""The macro ``NAME_STACK_SIZE``: how much stack calls of a model take, and how that is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from microfold.codegen.layout import comment_block, comment_text
from microfold.codegen.provenance import Build
from microfold.program import Program

# Bytes. No build that `python -m tests.codegen.sweep` makes for a core takes more.
STACK_BOUND = 2048


def stack_bound(program: Program, measured: int | None) -> int | None:
    """Return the bytes of stack that any call takes at most; None where nothing is known.

    Args:
        measured: bytes, as `Measurement.stack`. A build with taps calls a function of the firmware, which
            nobody has measured.
    """
    if measured is not None and not program.options.taps:
        return measured
    return STACK_BOUND if program.target.board else None


def compile_command(program: Program) -> str:
    """Return the compiler and the flags with which sizes of the generated code are measured."""
    return " ".join([program.target.compiler, *program.target.cpu_flags, program.options.compiler_flag])


def definition(program: Program, measured: int | None = None) -> str:
    """Return the lines of the header that define the macro, or say why it is not there.

    Args:
        measured: bytes, as `Measurement.stack`.
    """
    macro = f"{program.name.upper()}_STACK_SIZE"
    size = stack_bound(program, measured)
    if size is None:
        return comment_block([f"{macro} is not defined: the stack of this build is not known."])
    if size == measured:
        known = f"read off the machine code that {comment_text(compile_command(program))} makes"
        known += ". Other compilers and flags need other stacks."
    else:
        known = "not measured for this build. Tests found no code that takes more"
        known += f", {program.name}_tap_write aside." if program.options.taps else "."
    text = f"Bytes of stack that a call takes at most, interrupts aside: {known}"
    return f"{comment_block([text])}\n#define {macro} {size}"


def state_stacks(build: Build, measured: Iterable[tuple[Program, int | None]]) -> Build:
    """Return the build with measured stacks in its headers.

    The identity of the build stays what it is: that does not depend on compilers.

    Args:
        measured: the programs of the build, each with its bytes, as `Measurement.stack`.
    """
    files = dict(build.files)
    for program, stack in measured:
        header = f"{program.name}.h"
        unmeasured = definition(program)
        assert files[header].count(unmeasured) == 1, header
        files[header] = files[header].replace(unmeasured, definition(program, stack))
    return replace(build, files=files)
