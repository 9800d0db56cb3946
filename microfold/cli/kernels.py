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
    """Show every kernel considered for every layer: its cost, or why it does not fit."""
    layers = explain_model(model, target, code, passes, as_json)
    from microfold.compiler import layer_names
    from microfold.report.terminal import print_kernels

    names = layer_names(layers)
    if as_json:
        print_json([
            {
                "name": name,
                "op": layer.node.op.name,
                "tensor": layer.node.outputs[0].name,
                "candidates": [
                    {"kernel": c.kernel.name, "cost": c.cost, "reason": c.reason} for c in candidates
                ],
            }
            for name, (layer, candidates) in zip(names, layers, strict=True)
        ])  # fmt: skip
    else:
        print_kernels(names, layers, code.options())
