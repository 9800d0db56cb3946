"""microfold kernels"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microfold.cli.common import explain_model, print_json
from microfold.cli.default_target import CORE, choose_target
from microfold.cli.options import CodeOptions, Json, Model, TargetName
from microfold.cli.pass_options import PassOptions


def kernels(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = None,
    as_json: Json = False,
    dump_model: Annotated[
        Path | None,
        typer.Option(
            "--dump-model",
            metavar="FILE",
            help="Write the integer program of kernel selection to a .lp or .mps file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List all candidate kernels of every layer with their cost. Rejected kernels have a reason."""
    target = choose_target(target, CORE, as_json)
    explained = explain_model(model, target, code, passes, as_json, dump_model)
    from microfold.compiler import layer_names
    from microfold.reporting.kernels import describe_candidates
    from microfold.reporting.terminal.lists import print_kernels
    from microfold.target import load

    layers = [
        {
            "name": name,
            "op": each.layer.node.op.name,
            "tensor": each.layer.node.outputs[0].name,
            "candidates": describe_candidates(each.layer, each.candidates, each.why_not),
        }
        for name, each in zip(layer_names(explained), explained, strict=True)
    ]
    if as_json:
        print_json(layers)
    else:
        print_kernels(layers, code.options(), load(target))
