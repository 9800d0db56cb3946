"""microfold kernels"""

from __future__ import annotations

from microfold.cli.common import explain_model, print_json
from microfold.cli.options import CodeOptions, Json, Model, PassOptions, TargetName


def kernels(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    target: TargetName = "cortex-m4",
    as_json: Json = False,
) -> None:
    """Show all kernels considered for every layer, and their variants: what each takes, and why not."""
    from microfold.report.kernels import describe_candidates
    from microfold.report.terminal import print_kernels

    layers = [
        {
            "op": layer.node.op.name,
            "tensor": layer.node.outputs[0].name,
            "candidates": describe_candidates(layer, candidates),
        }
        for layer, candidates in explain_model(model, target, code, passes, as_json)
    ]
    if as_json:
        print_json(layers)
    else:
        print_kernels(layers, code.options())
