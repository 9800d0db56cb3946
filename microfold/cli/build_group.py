"""`microfold build` of several models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from microfold.cli.command_line import build_command
from microfold.cli.common import prepare_model, print_json, say_name, working
from microfold.cli.options import CodeOptions
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError
from microfold.support.json_text import to_json

if TYPE_CHECKING:
    from microfold.lowering.prepared import PreparedProgram
    from microfold.options import Options
    from microfold.program import Program
    from microfold.reporting.schema import BuildReport

# Default name of the files that the models share.
NAME = "models"
# Options that apply to a single model, each with the start of its error message.
_OF_ONE = {
    "place": "--place applies to a layer of a single model",
    "place_code": "--place-code applies to a layer of a single model",
    "kernel": "--kernel applies to a layer of a single model",
    "labels": "--labels applies to a single model",
    "database": "--database applies to the kernels of a single model",
    "taps": "--taps applies to a single model",
}
_OTHER_MEMORY = {
    "context": "--memory context uses one arena for each model, but several models share an arena",
    "parts": "--memory parts applies to a single model",
}


def build_group(
    models: Sequence[Path],
    target: str,
    code: CodeOptions,
    passes: PassOptions,
    output: Path,
    html: bool,
    as_json: bool,
) -> None:
    """Compile models that share kernels and one arena, and write a report of all of them.

    Raises:
        InputError: an option applies to a single model, or two names are equal.
    """
    reasons = [reason for option, reason in _OF_ONE.items() if getattr(code, option)]
    if passes.signature is not None:
        reasons.append("--signature applies to a single model")
    reasons += [_OTHER_MEMORY[code.memory]] if code.memory in _OTHER_MEMORY else []
    if code.weights == "blob":
        reasons.append("--weights blob does not support kernels that several models share")
    if reasons:
        raise InputError(f"{'; '.join(reasons)}: remove the option, or build the models separately")
    say_name(code.name, as_json)
    compiled = _compile(models, target, replace(code, name="", memory="split"), passes, as_json)
    with working("measuring code size", as_json):
        from microfold.codegen.group import arena_size, emit_group
        from microfold.codegen.names import model_identifier
        from microfold.codegen.shared import Shared
        from microfold.codegen.stack_size import state_stacks
        from microfold.lowering.one_run import check_one_run
        from microfold.lowering.regions import with_shared_regions
        from microfold.reporting.data import build_report
        from microfold.reporting.group import group_report, print_group
        from microfold.reporting.written import report_files
        from microfold.support.files import write_files
        from microfold.verification.measure import measure, measure_group

        command = build_command(models, target, replace(code, memory="split"), passes)
        named = [
            replace(program, origin=replace(program.origin, command=command))
            for program in compiled
            if program.origin is not None
        ]
        programs = with_shared_regions(named, arena_size(named))
        for program in programs:
            check_one_run(program)
        shared = Shared(model_identifier(code.name or NAME), tuple(programs))
        built = emit_group(shared)
        measured = measure_group(shared, built)
        stacks = measured.stacks if measured else (None,) * len(programs)
        built = state_stacks(built, zip(programs, stacks, strict=True))
        reports: list[BuildReport] = []
        for program, stack in zip(programs, stacks, strict=True):
            alone = measure(program)
            alone = replace(alone, stack=stack) if alone else None
            reports.append(build_report(program, alone, built.id))
        report = group_report(shared, measured, reports, built.id)
    files: dict[str, str | bytes] = dict(built.files)
    for program, each in zip(programs, reports, strict=True):
        files |= report_files(program.name, each, html)
    files[f"{shared.name}_report.json"] = to_json(report) + "\n"
    if html:
        from microfold.reporting.page.group import render_group

        files[f"{shared.name}_report.html"] = render_group(report)
    write_files(output, files)
    if as_json:
        print_json(report)
    else:
        print_group(shared, report, output)


def _compile(
    models: Sequence[Path], target: str, code: CodeOptions, passes: PassOptions, quiet: bool
) -> Sequence[Program]:
    """Return the programs of the models, within limits that apply to all of them together."""
    from microfold.lowering.group_budget import build_within

    watching = dict.fromkeys(models, passes)

    def build(model: Path, options: Options, explain: bool) -> PreparedProgram:
        own = replace(code, ram=options.ram, flash=options.flash, io=options.io)
        # A model may be built several times; only the first build is instrumented.
        watched = watching.pop(model, passes.unwatched)
        return prepare_model(model, target, own, watched, quiet, explain)

    return build_within([(model.stem, partial(build, model)) for model in models], code.options()).programs
