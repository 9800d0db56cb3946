"""Code sizes of whole programs: what estimates say beside what the compiler makes of the generated C."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from microfold.codegen.emit import emit
from microfold.codegen.functions import render_functions
from microfold.compiler import compile_file
from microfold.kernels.cost.code import guessed
from microfold.kernels.cost.code_rows import around_calls, description_bytes, estimate
from microfold.options import Options
from microfold.program import Program
from microfold.support.scratch import scratch_folder
from microfold.target import Target
from tests.kernels.calibration.code_sizes import compile_listing, read_listing
from tests.kernels.calibration.fit import non_negative

# Sections of a model's file that hold the code around its kernels.
_AROUND = re.compile(r"\.text\.\w+_(?:run|init|reset|input_\d+|output_\d+|stopped_loops|step)(?:\.\w+)*$")


class ProgramCode(Struct, frozen=True):
    """The code of one program, in bytes.

    Attributes:
        measured: of its sections in flash, without the weights.
        estimated: the same by the data files.
        around: measured bytes of the run function and the other functions that the firmware calls; kernels
            with one caller are kept apart.
        calls: how many the run function makes.
        kernels: measured bytes of kernels and helpers.
        estimated_kernels: the same by the data files.
    """

    name: str
    level: str
    measured: int
    estimated: int
    around: int
    calls: int
    kernels: int
    estimated_kernels: int
    descriptions: int
    estimated_descriptions: int


def program_code(path: Path, target: Target, level: str) -> ProgramCode:
    """Compile a model at a level of `Options.optimize`, and compare its code with estimates."""
    program = compile_file(path, target, Options(optimize=level))
    flag = program.options.compiler_flag
    whole, apart = (_sections(program, target, flag, kept_apart=each) for each in (False, True))
    small = level == "size"
    callers = Counter(layer.call.function for layer in program.calls)
    kernels, helpers = 0, dict[str, int]()
    calls = {layer.call.function: layer.call for layer in program.calls}
    kernels_of = {layer.call.function: layer.kernel for layer in program.calls}
    for function, call in calls.items():
        kernel = kernels_of[function]
        known = estimate(call, target.features, small=small)
        known = known or guessed(kernel.name, kernel.code, kernel.function_bytes)
        kernels += known.alone if callers[function] == 1 else known.shared
        helpers |= known.helpers
    kernels += sum(helpers.values())
    count = len(list(program.calls))
    descriptions = sum(
        description_bytes(layer.call) for layer in program.calls if callers[layer.call.function] > 1
    )
    around = sum(size for name, size in apart.items() if _AROUND.match(name))
    described = sum(size for name, size in apart.items() if name.endswith("_layer"))
    return ProgramCode(
        path.stem,
        level,
        sum(whole.values()),
        round(kernels + descriptions + around_calls(target.features, count, small=small)),
        around,
        count,
        sum(apart.values()) - around - described,
        kernels,
        described,
        descriptions,
    )


def _sections(program: Program, target: Target, level: str, *, kept_apart: bool) -> dict[str, int]:
    """Return the bytes in flash of the sections of a program's file.

    Args:
        kept_apart: no kernel becomes a part of the run function.
    """
    names = "|".join(re.escape(each.name) for each in render_functions(program).values())
    head = re.compile(rf"^static (?=void (?:{names})\()", re.MULTILINE)
    with scratch_folder() as folder:
        for name, text in emit(program).items():
            apart = head.sub("static __attribute__((noinline)) ", text) if kept_apart else text
            (folder / name).write_text(apart, encoding="utf-8")
        sizes, _ = read_listing(compile_listing(folder, f"{program.name}.c", target, [level]))
    return sizes


def around_code(path: Path, target: Target, level: str) -> tuple[int, int]:
    """Return how many calls a model's run function makes, and the bytes of code around its kernels."""
    program = compile_file(path, target, Options(optimize=level))
    sections = _sections(program, target, program.options.compiler_flag, kept_apart=True)
    return len(list(program.calls)), sum(size for name, size in sections.items() if _AROUND.match(name))


def fit_around(programs: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return `CodeFile.program` and `CodeFile.call`, in bytes, as they fit programs of one level.

    Args:
        programs: of each its calls, and the bytes of code around its kernels.
    """
    matrix = np.array([[1.0, calls] for calls, _ in programs])
    found = non_negative(matrix, np.array([float(size) for _, size in programs]))
    return float(found[0]), float(found[1])
