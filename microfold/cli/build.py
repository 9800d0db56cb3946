"""microfold build"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microfold.cli.common import compile_model, print_json, working
from microfold.cli.default_target import PORTABLE, choose_target
from microfold.cli.options import CodeOptions, Html, Json, Models, TargetName
from microfold.cli.outputs import named
from microfold.cli.pass_options import PassOptions


def build(
    models: Models,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", callback=named, metavar="PATH", help="Folder for the generated files."
        ),
    ] = Path("."),
    html: Html = False,
    as_json: Json = False,
) -> None:
    """Compile a model to C and write a report. Several models share kernels and one arena."""
    target = choose_target(target, PORTABLE, as_json)
    if len(models) > 1:
        from microfold.cli.build_group import build_group

        build_group(models, target, code, passes, output, html, as_json)
        return
    (model,) = models
    program = compile_model(model, target, code, passes, as_json)
    with working("measuring code size", as_json):
        from microfold.reporting.terminal.build import print_build
        from microfold.reporting.written import measured_build, written_files
        from microfold.support.files import write_files

        built, report = measured_build(program)
    write_files(output, written_files(program, built, report, html))
    if as_json:
        print_json(report)
    else:
        print_build(program, report, output)
