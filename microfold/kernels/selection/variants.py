"""Which of a kernel's variants computes a layer: time against memory."""

from __future__ import annotations

from collections.abc import Mapping

from microfold.kernels.band import offered
from microfold.kernels.kernel import Kernel, Trade
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.pins import pinned
from microfold.kernels.selection.policy import Case, Policy, far_from_largest
from microfold.kernels.selection.worth import refuse
from microfold.support.frozen import frozen

# Parts of a layer's time that as many bytes of arena are worth as its input and output have: twice the
# memory for half of the time is an even exchange where both count, and memory counts twice or a fourth where
# only the arena, or only time, is to be small.
MEMORY_FOR_TIME: Mapping[str, float] = {"size": 2.0, "balanced": 1.0, "speed": 0.25}
# What is left of that far from the largest layer of the model, which decides how large the arena gets.
FAR_FROM_LARGEST = 0.25


@frozen(eq=False)
class Offer:
    """A variant that a kernel offers for a layer.

    Attributes:
        reason: why the kernel's choice is not this one; None if it is.
        worth_it: whether it might be, as far as it is worth what it gives up.
    """

    case: Case
    reason: str | None
    worth_it: bool = True


def weigh_variants(kernel: Kernel, layer: LayerContext, policy: Policy) -> list[Offer]:
    """All variants, the one with the best score first, last those that are not worth what they give up.

    Args:
        kernel: it supports the layer.
    """
    cases = [Case(variant, layer, policy) for variant in offered(kernel, layer)]
    judged = [Offer(case, reason, worth_it=reason is None) for case in cases for reason in [refuse(case)]]
    if pinned(policy.model.pins, layer) is not None and not any(offer.worth_it for offer in judged):
        judged = [Offer(case, case.failure, worth_it=case.failure is None) for case in cases]
    allowed = [offer for offer in judged if offer.worth_it]
    refused = [offer for offer in judged if not offer.worth_it]
    if len(allowed) > 1:
        scored = [(_score(offer.case), offer) for offer in allowed]
        scored.sort(key=lambda pair: (pair[0], _tie(pair[1].case)))
        best = scored[0][0]
        worse = [Offer(offer.case, _why_worse(score, best)) for score, offer in scored[1:]]
        allowed = [scored[0][1], *worse]
    return allowed + refused


def _why_worse(score: float, best: float) -> str:
    if score == best:
        return "it is as good as another variant"
    return f"{score / best:.2f} times as many cycles as another variant, memory counted"


def _tie(case: Case) -> bool:
    """Whether another variant with the same score is better.

    Where only some layers are given wide weights, these have a function of their own, and often alone:
    compilers make it for its one caller.
    """
    wide = Trade.WIDE_WEIGHTS in case.kernel.trades
    return wide if case.policy.level == "speed" else not wide


def _score(case: Case) -> float:
    """Cycles, and for memory some more of them."""
    variant, layer, policy = case.kernel, case.layer, case.policy
    size = layer.node.operands[0].type.nbytes + layer.node.outputs[0].type.nbytes
    weight = MEMORY_FOR_TIME[policy.level]
    if far_from_largest(layer, policy.model):
        weight *= FAR_FROM_LARGEST
    return case.cost if policy.ram_limited else case.cost * (1 + weight * variant.extra_memory(layer) / size)
