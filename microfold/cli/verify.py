"""microfold verify"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microfold.cli.common import compile_model, print_json, working
from microfold.cli.default_target import PORTABLE, choose_target, split_targets
from microfold.cli.inputs import load_inputs
from microfold.cli.options import CodeOptions, Json, SuiteOptions, TargetName
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError

if TYPE_CHECKING:
    from microfold.cli.suite import SuiteTask


def verify(
    code: CodeOptions,
    passes: PassOptions,
    suite: SuiteOptions,
    model: Annotated[
        Path | None,
        typer.Argument(
            help="A .tflite file, a C array of one, or a graph in text form (.mf).",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    target: TargetName = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--inputs",
            metavar="FILE.npy",
            help="One .npy file per model input, with one input set or several stacked. Repeatable.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=10_000, metavar="N", help="Number of generated input sets.")
    ] = 8,
    layers: Annotated[
        bool, typer.Option("--layers", help="List all layers that differ, not only the first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the generated C and compare all tensors with the reference.

    Exit code 1 if any bit differs. With --suite, unsupported models are listed but are not errors; any other
    failure causes exit code 1.
    """
    target = choose_target(target, PORTABLE, as_json)
    if suite.suite is not None:
        if model is not None or inputs:
            raise InputError("--suite cannot be combined with a model or --inputs; remove either of them")
        _verify_suite(suite.suite, suite, target, code, passes, runs, as_json)
        return
    suite.check_unused()
    if model is None:
        raise InputError("verify requires a model, or --suite DIR")
    program = compile_model(model, target, code, passes, as_json)
    from microfold.reporting.data import verify_report
    from microfold.reporting.terminal.verify import print_verification
    from microfold.verification.verify import input_sets
    from microfold.verification.verify import verify as run_verify
    from microfold.verification.window import runs_to_make

    types = [buffer.type for buffer in program.inputs]
    calls = load_inputs(inputs, program) if inputs else input_sets(types, runs_to_make(program, runs))
    with working(f"running {len(calls)} input sets on {program.target.name}", as_json):
        result = run_verify(program, calls)
    if as_json:
        print_json(verify_report(program, result))
    else:
        print_verification(program, result, every_layer=layers)
    if not result.exact:
        raise typer.Exit(1)


def _verify_suite(
    folder: Path,
    suite: SuiteOptions,
    target: str,
    code: CodeOptions,
    passes: PassOptions,
    runs: int,
    as_json: bool,
) -> None:
    from microfold.cli.suite import finish, models_of, rows, run_suite
    from microfold.reporting.terminal.verify import print_verify_suite

    targets = split_targets(target)
    reports = run_suite(
        suite, verify_piece, models_of(folder), targets, code, passes, runs=runs, quiet=as_json
    )
    finish(reports, lambda: print_verify_suite(rows(reports)), as_json)


def verify_piece(path: Path, piece: SuiteTask) -> dict[str, Any]:
    """Return the verification report of one piece of a suite."""
    from microfold.reporting.data import verify_report
    from microfold.verification.verify import input_sets
    from microfold.verification.verify import verify as run_verify
    from microfold.verification.window import runs_to_make

    program = compile_model(path, piece.target, piece.code, piece.passes, quiet=True)
    calls = input_sets([buffer.type for buffer in program.inputs], runs_to_make(program, piece.runs))
    return verify_report(program, run_verify(program, calls))
