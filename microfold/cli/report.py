"""microfold report"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from microfold.cli.common import compile_model, print_json, progress_bar, working
from microfold.cli.default_target import CORE, choose_target
from microfold.cli.options import CodeOptions, Json, TargetName
from microfold.cli.outputs import STANDARD_OUTPUT, check_one_text, write_text
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError, MicrofoldError

if TYPE_CHECKING:
    from microfold.reporting.schema import Tradeoff, WhatIfBuild


def report(
    model: Annotated[
        Path,
        typer.Argument(
            help="A .tflite file, a graph in text form (.mf), or the .json report of build or bench.",
            metavar="MODEL",
            show_default=False,
        ),
    ],
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PATH", help="HTML file to write; - is standard output.")
    ] = Path("report.html"),
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            metavar="REPORT.json",
            help="Report of another build to compare with.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE.json",
            help="Measured ticks of each layer, shown next to the estimates.",
            show_default=False,
        ),
    ] = None,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="Also compile for all cores and levels (slow)."),
    ] = False,
    tradeoffs: Annotated[
        bool,
        typer.Option(
            "--tradeoffs", help="Also find the Pareto-optimal builds, as `microfold tradeoffs` does."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write an HTML page about a build.

    The page is one self-contained file: memory over time, layers, graph, proofs, kernel selection.
    """
    check_one_text(output, {"--json": as_json})
    stored = model.suffix == ".json"
    if stored and (
        target is not None or what_if or tradeoffs or code != CodeOptions() or passes != PassOptions()
    ):
        raise InputError(
            f"compiler options, --what-if and --tradeoffs require a model; {model} is the report of a "
            "finished build: remove them, or pass the model"
        )
    core = CORE if stored else choose_target(target, CORE, as_json)
    from microfold.reporting.page.page import collect_page, render_page
    from microfold.reporting.profile import read_profile
    from microfold.reporting.stored import load_report, read_report
    from microfold.support.decode import read_json

    # Read all files first, so that their errors are reported before the model is compiled.
    other = (compare.name, load_report(compare)) if compare is not None else None
    ticks = read_json(profile) if profile is not None else None
    data = read_json(model) if stored else _compile(model, core, code, passes, as_json)
    build = read_report(data, str(model))
    names = [layer.name for layer in build.layers]
    measured = read_profile(ticks, profile, names) if profile is not None else None
    tried = list(_try_alternatives(model, code, passes, as_json)) if what_if else []
    front = _tradeoffs(model, core, code, passes, as_json) if tradeoffs else []
    page = collect_page(build, other=other, profile=measured, alternatives=tried, front=front)
    write_text(output, render_page(page))
    if as_json:
        shown = {"what_if": tried} if what_if else {}
        print_json(data | shown | ({"tradeoffs": front} if tradeoffs else {}))
    elif output != STANDARD_OUTPUT:
        print(f"Written to {output}.")


def _compile(model: Path, target: str, code: CodeOptions, passes: PassOptions, quiet: bool) -> dict[str, Any]:
    """Return the report of a build, without writing C files."""
    program = compile_model(model, target, code, passes, quiet)
    with working("measuring code size", quiet):
        from msgspec import to_builtins

        from microfold.reporting.data import build_report
        from microfold.verification.measure import measure

        return to_builtins(build_report(program, measure(program)))


def _tradeoffs(
    model: Path, target: str, code: CodeOptions, passes: PassOptions, quiet: bool
) -> list[Tradeoff]:
    """Return the Pareto-optimal builds, regardless of the level and limits of the page's build."""
    from microfold.cli.tradeoffs import front_of

    free = replace(code, optimize=CodeOptions().optimize, flash=None, ram=None)
    with progress_bar("tradeoffs: levels and limits", quiet) as progress:
        return front_of(model, target, free, passes.unwatched, progress)


def _try_alternatives(
    model: Path, code: CodeOptions, passes: PassOptions, quiet: bool
) -> Iterator[WhatIfBuild]:
    """Yield the figures of the model on other cores and at other levels."""
    from microfold.reporting.what_if import alternative, alternatives, impossible
    from microfold.verification.measure import measure

    passes = passes.unwatched
    tried = alternatives()
    for number, (core, level) in enumerate(tried, 1):
        with working(f"what if: {core}, {level}: {number} of {len(tried)}", quiet):
            try:
                program = compile_model(
                    model, core, replace(code, optimize=level, flash=None, ram=None), passes, quiet=True
                )
                yield alternative(program, measure(program))
            except MicrofoldError as error:
                yield impossible(core, level, str(error))
