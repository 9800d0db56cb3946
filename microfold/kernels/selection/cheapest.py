"""Kernel selection: the cheapest that fits, with every refusal kept as a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from microfold.ir.op import Op
from microfold.kernels.band import lowered
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import KERNELS, PACKED, Kernel, Trade
from microfold.kernels.layer import LayerContext
from microfold.kernels.loading import load_kernels
from microfold.kernels.selection.pins import pinned
from microfold.kernels.selection.policy import Case, Policy
from microfold.kernels.selection.variants import Offer, weigh_variants
from microfold.kernels.selection.worth import refuse
from microfold.ops.control.control_flow import While
from microfold.ops.image import refuses_layout
from microfold.support.frozen import frozen

# Operators that passes replace where they can.
_NO_KERNEL: Mapping[type[Op], str] = {
    While: "a loop must have a bound on how often it runs; `microfold ir MODEL --explain lower_loops` says "
    "why this one has none; give one with `--max-iterations`, or export the model with a constant number of "
    "steps",
}


@frozen(eq=False)
class Candidate:
    """A kernel considered for a layer: either the cost of its best variant, or why not.

    Attributes:
        cost: `Case.cost`: cycles.
        offers: all its variants, the best one first; none if the kernel cannot compute the layer.
    """

    kernel: Kernel
    cost: float | None
    reason: str | None
    offers: Sequence[Offer] = ()

    @property
    def instructions(self) -> float | None:
        """Estimated instructions of a call, whatever the cost is; None if it cannot compute the layer."""
        return self.cost if self._case is None else self._case.instructions

    @property
    def cycles(self) -> float | None:
        """The same in cycles."""
        return self.cost if self._case is None else self._case.cycles

    @property
    def measured(self) -> int | None:
        """Cycles of a call, if they were measured."""
        return None if self._case is None else self._case.measured

    @property
    def _case(self) -> Case | None:
        """Of a kernel that can compute the layer, and was compared with others."""
        cases = (offer.case for offer in self.offers if offer.case.kernel is self.kernel)
        return next(cases, None) if self.cost is not None else None

    def variant(self, offer: Offer) -> Candidate:
        """The same with another one of its variants."""
        return replace(self, kernel=offer.case.kernel, cost=offer.case.cost, reason=None)


@frozen(eq=False)
class Ranking:
    """A layer with the kernels considered for it, the best first.

    Attributes:
        fixed: no other kernel may take the first one's place: an external code generator gave it, or there is
            no other way.
        runs: how often a run of the model computes it, at most: that of the loops around it.
    """

    layer: LayerContext
    candidates: Sequence[Candidate]
    fixed: bool = False
    runs: int = 1

    @property
    def variants(self) -> list[Candidate]:
        """What computes the layer and is worth what it gives up: each variant as a candidate of its own."""
        return [
            candidate.variant(offer)
            for candidate in self.candidates
            for offer in candidate.offers
            if candidate.cost is not None and offer.worth_it
        ]

    def variants_with(self, trade: Trade) -> Iterator[Candidate]:
        """Likewise what gives up that, and is worth all else that it gives up."""
        for candidate in self.candidates:
            for offer in candidate.offers:
                if trade in offer.case.kernel.trades and refuse(offer.case, frozenset({trade})) is None:
                    yield candidate.variant(offer)


def run_cost(layers: Sequence[Ranking], chosen: Sequence[Candidate]) -> float:
    """`Candidate.cost` of all layers in a run."""
    return sum((c.cost or 0.0) * r.runs for r, c in zip(layers, chosen, strict=True))


def asked_cost(layers: Sequence[Ranking]) -> float:
    """The same with the best kernels by what the options ask for, whatever the budgets."""
    return run_cost(layers, [ranking.candidates[0] for ranking in layers])


def lowered_calls(
    layers: Sequence[Ranking], chosen: Sequence[Candidate]
) -> tuple[list[Kernel], list[KernelCall]]:
    """Kernels and their calls, as planners of arenas want them."""
    kernels = [candidate.kernel for candidate in chosen]
    return kernels, [lowered(kernel, r.layer) for kernel, r in zip(kernels, layers, strict=True)]


def candidates(layer: LayerContext, policy: Policy) -> list[Candidate]:
    """Every kernel of the node's operator: fitting ones first, cheapest first.

    Where not only speed counts, those with closely packed weights come before the others.
    """

    def find() -> list[Candidate]:
        node = layer.node
        load_kernels(type(node.op))
        fitting = [k for k in KERNELS if k.op is type(node.op) and k.is_for(node)]
        return in_order([consider(k, layer, policy) for k in fitting], policy)

    return policy.model.remembered((candidates, layer, policy), find)


def in_order(found: Iterable[Candidate], policy: Policy) -> list[Candidate]:
    """Candidates as `candidates` sorts them."""
    speed = policy.level == "speed"

    def order(candidate: Candidate) -> tuple[bool, bool, float, str]:
        kernel, cost = candidate.kernel, candidate.cost
        packed = not kernel.trades.isdisjoint(PACKED)
        return cost is None, not (speed or packed), cost or 0.0, kernel.name

    return sorted(found, key=order)


def consider(kernel: Kernel, layer: LayerContext, policy: Policy) -> Candidate:
    """Return the kernel with its choices made, or why it does not fit."""
    pins = pinned(policy.model.pins, layer)
    if pins is not None and kernel.name not in pins:
        return Candidate(kernel, None, f"{' or '.join(sorted(pins))} is pinned")
    # No level changes what it can compute.
    reason = policy.model.remembered((unfit, kernel, layer), lambda: unfit(kernel, layer))
    if reason is not None and pins is not None:
        reason = cannot_compute(kernel, layer)
    if reason is not None:
        return Candidate(kernel, None, reason)
    offers = weigh_variants(kernel, layer, policy)
    best = offers[0]
    if best.reason is not None:
        return Candidate(kernel, None, best.reason, offers)
    return Candidate(best.case.kernel, best.case.cost, None, offers)


def unfit(kernel: Kernel, layer: LayerContext) -> str | None:
    """Return why a kernel of its operator cannot compute a layer, or need not; None if it may."""
    better = sorted(kernel.superseded_by & layer.target.features)
    if better and kernel.features <= layer.target.features and not refuses_layout(layer.node.op):
        return f"for cores with {', '.join(better)} there are better kernels"
    return cannot_compute(kernel, layer)


def cannot_compute(kernel: Kernel, layer: LayerContext) -> str | None:
    """Return why a kernel of its operator cannot compute a layer; None if it can."""
    missing = sorted(kernel.features - layer.target.features)
    if missing:
        return f"the target lacks {', '.join(missing)}"
    # Every kernel computes NHWC: `convert_layout` has brought the graph there.
    layout = refuses_layout(layer.node.op)
    if layout is not None:
        return layout
    reason = kernel.supports(layer)
    if reason is None and layer.row_table and not any(v.reads_rows(layer) for v in kernel.variants(layer)):
        return "rows of its input must lie behind each other"
    return reason


def why_none(layer: LayerContext, considered: Sequence[Candidate]) -> str:
    """Why no kernel computes a layer: every candidate's reason."""
    if not considered:
        return _NO_KERNEL.get(type(layer.node.op), f"there is no kernel for {layer.node.op.name}")
    return "; ".join(f"{c.kernel.name}: {c.reason}" for c in considered)
