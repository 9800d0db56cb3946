"""Candidate kernels of a layer, the fastest first, and the reasons why other kernels cannot compute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.kernels.band import lowered, offered
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.loading import load_kernels
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.kernels.selection.pins import NO_PINS, Pins, pinned
from microfold.ops.control.control_flow import While
from microfold.ops.image import refuses_layout

# Reasons for operators without kernels, which passes replace if they can.
_NO_KERNEL: Mapping[type[Op], str] = {
    While: "a loop must have a bound on how often it runs; `microfold ir MODEL --explain lower_loops` says "
    "why this one has none; give one with `--max-iterations`, or export the model with a constant number of "
    "steps",
}


class Guidance(Struct, frozen=True, eq=False):
    """Knowledge about kernels from outside of the cost model: measurements and pins.

    Attributes:
        costs: measured times of kernels; None if estimates decide.
        pins: the only kernels that may compute some nodes.
    """

    costs: MeasuredCosts | None = None
    pins: Pins = NO_PINS


NO_GUIDANCE = Guidance()


class Implementation(Struct, frozen=True, eq=False):
    """One variant of a kernel for a layer, with its cost.

    Attributes:
        cost: cycles of a call, measured or estimated, if several layers may call the function.
        single_caller_cost: cycles of a call if the function is compiled for this layer alone.
        failure: reason why the variant must not compute the layer: it failed when it was measured.
        measured: cycles of a call, if they were measured.
    """

    kernel: Kernel
    layer: LayerContext
    cost: float
    single_caller_cost: float
    failure: str | None = None
    measured: int | None = None

    @property
    def instructions(self) -> float:
        """Estimated instructions of a call."""
        return self.kernel.cost(self.layer)


class Candidate(Struct, frozen=True, eq=False):
    """A kernel considered for a layer: its best variant with the cost, or the reason for its rejection.

    Attributes:
        cost: cycles of a call; None if the kernel is rejected.
        offers: all its variants, the fastest first; empty if the kernel cannot compute the layer.
    """

    kernel: Kernel
    cost: float | None
    reason: str | None
    offers: Sequence[Implementation] = ()

    @property
    def instructions(self) -> float | None:
        """Estimated instructions of a call; the cost for external code, None if the kernel is rejected."""
        offers = (offer for offer in self.offers if offer.kernel is self.kernel)
        return self.cost if self.cost is None else next((o.instructions for o in offers), self.cost)

    @property
    def measured(self) -> int | None:
        """Cycles of a call, if they were measured."""
        return next((offer.measured for offer in self.offers if offer.kernel is self.kernel), None)

    def variant(self, offer: Implementation) -> Candidate:
        """Return the candidate with another one of its variants."""
        return replace(self, kernel=offer.kernel, cost=offer.cost, reason=None)


class LayerCandidates(Struct, frozen=True, eq=False):
    """A layer with the kernels considered for it, the fastest first.

    Attributes:
        fixed: whether the first candidate is the only choice: an external code generator provides it, or no
            other kernel exists.
        runs: maximum number of times that a run of the model computes the layer: the trip count of the loops
            around it.
    """

    layer: LayerContext
    candidates: Sequence[Candidate]
    fixed: bool = False
    runs: int = 1

    @property
    def least_cost(self) -> float:
        """Lower bound of the cycles of a call over all variants; 0 if no cost is known."""
        offers = (offer for candidate in self.candidates for offer in candidate.offers)
        costs = [min(offer.cost, offer.single_caller_cost) for offer in offers if offer.failure is None]
        return min(costs, default=self.candidates[0].cost or 0.0)

    @property
    def variants(self) -> list[Candidate]:
        """All variants that may compute the layer, each as a separate candidate."""
        return [
            candidate.variant(offer)
            for candidate in self.candidates
            for offer in candidate.offers
            if offer.failure is None
        ]


def run_cost(layers: Sequence[LayerCandidates], chosen: Sequence[Candidate]) -> float:
    """Return the cycles of all layers in a run."""
    return sum((c.cost or 0.0) * r.runs for r, c in zip(layers, chosen, strict=True))


def least_cost(layers: Sequence[LayerCandidates]) -> float:
    """Return the cycles of all layers in a run with the fastest kernels."""
    return run_cost(layers, [ranking.candidates[0] for ranking in layers])


def lowered_calls(
    layers: Sequence[LayerCandidates], chosen: Sequence[Candidate]
) -> tuple[list[Kernel], list[KernelCall]]:
    """Return the chosen kernels and their calls, as arena planners need them."""
    kernels = [candidate.kernel for candidate in chosen]
    return kernels, [lowered(kernel, r.layer) for kernel, r in zip(kernels, layers, strict=True)]


def kernels_for(node: Node) -> list[Kernel]:
    """Return the kernels that are meant for a node, whether or not they support it. Import them if needed."""
    load_kernels(type(node.op))
    return [kernel for kernel in KERNELS if kernel.op is type(node.op) and kernel.is_for(node)]


def candidates(layer: LayerContext, guidance: Guidance = NO_GUIDANCE) -> list[Candidate]:
    """Return every kernel of the node's operator: supported ones first, the fastest of them first."""

    def find() -> list[Candidate]:
        found = [evaluate_candidate(kernel, layer, guidance) for kernel in kernels_for(layer.node)]
        return sorted(found, key=lambda c: (c.cost is None, c.cost or 0.0, c.kernel.name))

    return layer.remembered((candidates, guidance), find)


def evaluate_candidate(kernel: Kernel, layer: LayerContext, guidance: Guidance = NO_GUIDANCE) -> Candidate:
    """Return a kernel with its variants for a layer, or with the reason why it is rejected."""
    pins = pinned(guidance.pins, layer)
    if pins is not None and kernel.name not in pins:
        return Candidate(kernel, None, f"{' or '.join(sorted(pins))} is pinned")
    reason = layer.remembered((rejection_reason, kernel), lambda: rejection_reason(kernel, layer))
    if reason is not None and pins is not None:
        reason = unsupported_reason(kernel, layer)
    if reason is not None:
        return Candidate(kernel, None, reason)
    offers = [_offer(variant, layer, guidance.costs) for variant in offered(kernel, layer)]
    offers.sort(key=lambda offer: (offer.failure is not None, offer.cost))
    best = offers[0]
    if best.failure is not None:
        return Candidate(kernel, None, best.failure, offers)
    return Candidate(best.kernel, best.cost, None, offers)


def _offer(variant: Kernel, layer: LayerContext, costs: MeasuredCosts | None) -> Implementation:
    if costs is not None:
        cost, failure = costs.cycles(variant, layer), costs.failure(variant, layer)
        return Implementation(variant, layer, cost, cost, failure, costs.measured(variant, layer))
    return Implementation(variant, layer, variant.cycles(layer), variant.single_caller_cycles(layer))


def rejection_reason(kernel: Kernel, layer: LayerContext) -> str | None:
    """Return why a kernel of the operator cannot or need not compute a layer; None if it may."""
    better = sorted(kernel.superseded_by & layer.target.features)
    if better and kernel.features <= layer.target.features and not refuses_layout(layer.node.op):
        return f"cores with {', '.join(better)} have better kernels"
    return unsupported_reason(kernel, layer)


def unsupported_reason(kernel: Kernel, layer: LayerContext) -> str | None:
    """Return why a kernel of the operator cannot compute a layer; None if it can."""
    missing = sorted(kernel.features - layer.target.features)
    if missing:
        return f"the target lacks {', '.join(missing)}"
    # Every kernel computes NHWC, to which `convert_layout` has converted the graph.
    layout = refuses_layout(layer.node.op)
    if layout is not None:
        return layout
    reason = kernel.supports(layer)
    if (
        reason is None
        and layer.indirection_buffer
        and not any(v.supports_indirection(layer) for v in kernel.variants(layer))
    ):
        return "rows of its input must be contiguous"
    return reason


def no_kernel_reason(layer: LayerContext, considered: Sequence[Candidate]) -> str:
    """Return why no kernel computes a layer: the reasons of all candidates."""
    if not considered:
        return _NO_KERNEL.get(type(layer.node.op), f"no kernel implements {layer.node.op.name}")
    return "; ".join(f"{c.kernel.name}: {c.reason}" for c in considered)
