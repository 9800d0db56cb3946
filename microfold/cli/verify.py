"""microfold verify"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microfold.cli.common import compile_model, print_json, working
from microfold.cli.inputs import load_inputs
from microfold.cli.options import CodeOptions, Json, Model, PassOptions, TargetName


def verify(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = "host",
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--inputs", help="A .npy per model input: one input set, or several stacked.", show_default=False
        ),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, max=10_000, help="Input sets to make up.")] = 8,
    layers: Annotated[bool, typer.Option("--layers", help="List every differing layer.")] = False,
    as_json: Json = False,
) -> None:
    """Run the generated C and compare every tensor with the reference; exit 1 if any bit differs."""
    program = compile_model(model, target, code, passes, as_json)
    from microfold.report.data import verify_report
    from microfold.report.terminal import print_verification
    from microfold.verification.verify import input_sets
    from microfold.verification.verify import verify as run_verify

    types = [buffer.type for buffer in program.inputs]
    calls = load_inputs(inputs, program) if inputs else input_sets(types, runs)
    with working(f"running {len(calls)} input sets on {program.target.name}", as_json):
        result = run_verify(program, calls)
    if as_json:
        print_json(verify_report(program, result))
    else:
        print_verification(program, result, every_layer=layers)
    if not result.exact:
        raise typer.Exit(1)
