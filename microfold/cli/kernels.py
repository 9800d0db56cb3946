"""microfold kernels"""

from __future__ import annotations

from microfold.cli.common import load_graph, print_json
from microfold.cli.options import CodeOptions, External, Json, Model, Optimize, TargetName


def kernels(
    model: Model,
    target: TargetName = "cortex-m4",
    optimize: Optimize = "balanced",
    external: External = None,
    as_json: Json = False,
) -> None:
    """Show every kernel considered for every layer: its cost, or why it does not fit."""
    from microfold import target as targets
    from microfold.compiler import explain_kernels
    from microfold.tables import print_kernels

    options = CodeOptions(optimize=optimize, external=external).options()
    layers = explain_kernels(load_graph(model), targets.load(target), options)
    if as_json:
        print_json([
            {
                "op": site.node.op.name,
                "tensor": site.node.outputs[0].name,
                "candidates": [
                    {"kernel": c.kernel.name, "cost": c.cost, "reason": c.reason} for c in candidates
                ],
            }
            for site, candidates in layers
        ])  # fmt: skip
    else:
        print_kernels(layers)
