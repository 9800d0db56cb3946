"""Kernel selection: the cheapest that fits, with every refusal kept as a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from microfold.ir.op import Op
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.control.control_flow import While
from microfold.ops.image import refuses_layout

# Operators that passes take away where they can.
_NO_KERNEL: Mapping[type[Op], str] = {
    While: "a loop must run a number of times that is known at compile time, and sensible, to be unrolled; "
    "`microfold ir MODEL --explain partial_evaluate` says why it is not; export the model with a constant "
    "number of steps (Keras RNN layers have `unroll=True`)",
}


@dataclass(frozen=True)
class Candidate:
    """A kernel considered for a node: either its cost, or why it does not fit."""

    kernel: Kernel
    cost: float | None
    reason: str | None


def candidates(layer: LayerContext) -> list[Candidate]:
    """Every kernel of the node's operator: fitting ones first, cheapest first.

    Where speed is all that counts, cycles decide. Otherwise instructions do, and those with closely packed
    weights come before the others.
    """
    found: list[Candidate] = []
    speed = layer.options.optimize == "speed"
    for kernel in KERNELS:
        if kernel.op is not type(layer.node.op):
            continue
        missing = sorted(kernel.features - layer.target.features)
        # Every kernel computes NHWC: `convert_layout` has brought the graph there.
        layout = refuses_layout(layer.node.op)
        reason = f"the target lacks {', '.join(missing)}" if missing else layout or kernel.supports(layer)
        cost = kernel.cost(layer) if reason is None else None
        found.append(Candidate(kernel, cost, reason))

    def order(candidate: Candidate) -> tuple[bool, bool, float, str]:
        kernel, cost = candidate.kernel, candidate.cost
        if cost is not None and speed:
            cost *= kernel.cycles_per_instruction(layer)
        return cost is None, not (speed or kernel.packed), cost or 0.0, kernel.name

    return sorted(found, key=order)


def select(layer: LayerContext) -> Kernel | str:
    """The cheapest kernel, or the reason why there is none (every candidate's)."""
    considered = candidates(layer)
    if considered and considered[0].cost is not None:
        return considered[0].kernel
    if not considered:
        return _NO_KERNEL.get(type(layer.node.op), f"there is no kernel for {layer.node.op.name}")
    return "; ".join(f"{c.kernel.name}: {c.reason}" for c in considered)
