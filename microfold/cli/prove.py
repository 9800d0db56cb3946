"""microfold prove"""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import asdict, replace

from microfold.cli.common import compile_model, print_json, progress_bar
from microfold.cli.default_target import PORTABLE, choose_target
from microfold.cli.options import CodeOptions, Json, Model, TargetName
from microfold.cli.pass_options import PassOptions


def prove(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, metavar="N", help="Time limit for each layer.")
    ] = 600.0,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, metavar="N", help="Layers at a time. [default: one for each processor]"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove that no input leads to undefined behaviour, with Frama-C.

    Each layer is analysed for any content of the arena, the state and the inputs. Exit code 1 if a property
    of a layer is not proved.
    """
    target = choose_target(target, PORTABLE, as_json)
    program = compile_model(model, target, replace(code, step=True), passes, as_json)
    from microfold.prove.proof import prove as run_prove

    with progress_bar(f"analysing {len(program.layers)} layers", as_json) as progress:
        proof = run_prove(program, seconds, jobs, progress)
    if as_json:
        print_json({**asdict(proof), "proved": proof.proved})
    else:
        from microfold.reporting.terminal.prove import print_proof

        print_proof(proof)
    if not proof.proved:
        raise typer.Exit(1)
