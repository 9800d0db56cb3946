"""Functions of the Python interface; `import microfold` loads them when they are first used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from microfold.api.compilation import compile_program, load_target
from microfold.api.options import CompileOptions, with_options
from microfold.api.quantization import quantize
from microfold.api.results import BuildResult, ReportPage
from microfold.errors import InputError
from microfold.frontend.model_source import ModelSource
from microfold.host.session import Session
from microfold.ir.interpret import check_inputs
from microfold.ir.types import Array
from microfold.program import Program
from microfold.target import Target
from microfold.verification.verify import Verification, input_sets
from microfold.verification.verify import verify as verify_program
from microfold.verification.window import runs_to_make

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["build", "compile", "load_target", "quantize", "report", "verify"]

TargetChoice = str | os.PathLike[str] | Target
InputSet = Array | Sequence[Array]


@with_options
def compile(model: ModelSource, target: TargetChoice = "host", **options: Unpack[CompileOptions]) -> Session:
    """Compile a model to C, compile the C for this machine, and load it.

    Args:
        model: path of a `.tflite` file, of a C array of one, or of a graph in text form (`.mf`); the content
            of a `.tflite` file as bytes; a file object that is open for reading bytes; or an imported graph.
        target: target whose code this machine can run, without SIMD instructions.
        options: see `microfold.api.options.CompileOptions`.

    Returns:
        A session, which is called with one numpy array of real numbers per input.

    Raises:
        MicrofoldError: the model cannot be compiled, an option is wrong, or no C compiler was found.
    """
    core = target if isinstance(target, Target) else load_target(target)
    if core.has("dsp"):
        raise InputError(
            f"code for {core.name} has SIMD instructions that this machine lacks; use target='host'"
        )
    return Session(compile_program(model, core, options))


@with_options
def build(
    model: ModelSource,
    target: TargetChoice,
    output: str | os.PathLike[str] | None = None,
    **options: Unpack[CompileOptions],
) -> BuildResult:
    """Compile a model to C for a target, as `microfold build` does.

    Args:
        model: as for `compile`.
        target: name of a built-in target, path of a `.toml` file, or a loaded target.
        output: folder to which the files are written; None: they are only returned.
        options: see `microfold.api.options.CompileOptions`.

    Returns:
        The C files and the report. Sizes of code and stack are unknown if the target's compiler is missing.

    Raises:
        MicrofoldError: the model cannot be compiled, an option is wrong, or the folder cannot be written.
    """
    result = _build(compile_program(model, target, options))
    if output is not None:
        result.write(output)
    return result


@with_options
def verify(
    model: ModelSource,
    target: TargetChoice = "host",
    *,
    inputs: Sequence[InputSet] | None = None,
    runs: int = 8,
    **options: Unpack[CompileOptions],
) -> Verification:
    """Run the generated C and compare all tensors with the reference, as `microfold verify` does.

    Args:
        model: as for `compile`.
        target: target whose code runs on this machine, or on a simulated core.
        inputs: input sets, each an array or one array per input, of the stored types; None: generated sets
            that cover the range of the inputs.
        runs: number of generated input sets.
        options: see `microfold.api.options.CompileOptions`.

    Returns:
        The result; its `exact` is true if nothing differs.

    Raises:
        MicrofoldError: the model cannot be compiled, inputs do not fit, or a tool is missing.
    """
    if inputs is None and runs < 1:
        raise InputError(f"runs must be at least 1; got {runs}")
    program = compile_program(model, target, options)
    if inputs is None:
        calls = input_sets([buffer.type for buffer in program.inputs], runs_to_make(program, runs))
    else:
        calls = [(each,) if isinstance(each, np.ndarray) else tuple(each) for each in inputs]
        if not calls:
            raise InputError("inputs must have at least one input set; got none: omit it for generated sets")
        for call in calls:
            check_inputs([buffer.value for buffer in program.inputs], call)
    return verify_program(program, calls)


@with_options
def report(
    model: ModelSource,
    target: TargetChoice,
    output: str | os.PathLike[str] | None = None,
    **options: Unpack[CompileOptions],
) -> ReportPage:
    """Return the HTML page about a build, as `microfold report` does. A notebook shows it.

    Args:
        model: as for `compile`.
        target: as for `build`.
        output: HTML file to write; None: the page is only returned.
        options: see `microfold.api.options.CompileOptions`.

    Raises:
        MicrofoldError: the model cannot be compiled, an option is wrong, or the file cannot be written.
    """
    from microfold.reporting.page.page import collect_page, render_page

    result = _build(compile_program(model, target, options))
    name = result.program.name
    page = ReportPage(name, render_page(collect_page(result.report)), result.report)
    if output is not None:
        page.write(output)
    return page


def _build(program: Program) -> BuildResult:
    from microfold.reporting.written import measured_build, written_files

    built, found = measured_build(program)
    return BuildResult(program, written_files(program, built, found), found)
