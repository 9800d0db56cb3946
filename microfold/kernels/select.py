"""Kernel selection: the cheapest that fits, with every refusal kept as a reason."""

from __future__ import annotations

from dataclasses import dataclass

from microfold.kernels.kernel import KERNELS, Kernel, Site


@dataclass(frozen=True)
class Candidate:
    """A kernel considered for a node: either its cost, or why it does not fit."""

    kernel: Kernel
    cost: float | None
    reason: str | None


def candidates(site: Site) -> list[Candidate]:
    """Every kernel of the node's operator: fitting ones first, cheapest first."""
    found: list[Candidate] = []
    for kernel in KERNELS:
        if kernel.op is not type(site.node.op):
            continue
        missing = sorted(kernel.features - site.target.features)
        reason = f"the target lacks {', '.join(missing)}" if missing else kernel.supports(site)
        cost = kernel.cost(site) if reason is None else None
        found.append(Candidate(kernel, cost, reason))
    return sorted(found, key=lambda c: (c.cost is None, c.cost or 0.0, c.kernel.name))


def select(site: Site) -> Kernel | str:
    """The cheapest kernel, or the reason why there is none (every candidate's)."""
    considered = candidates(site)
    if considered and considered[0].cost is not None:
        return considered[0].kernel
    if not considered:
        return f"there is no kernel for {site.node.op.name}"
    return "; ".join(f"{c.kernel.name}: {c.reason}" for c in considered)
