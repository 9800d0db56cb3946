"""Data of the candidate kernels of layers, with all their variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import Candidate, Implementation
from microfold.kernels.selection.variant import constants_of
from microfold.kernels.selection.variant_labels import distinguish
from microfold.lowering.choose import NOT_CHOSEN


def describe_candidates(
    layer: LayerContext, candidates: Sequence[Candidate], why_not: Mapping[Kernel, str] | None = None
) -> list[dict[str, Any]]:
    """Return each kernel's cost or reason for rejection, and its variants, in the order of selection.

    Args:
        why_not: reasons for variants that are not chosen, if known.
    """
    return [
        {
            "kernel": candidate.kernel.name,
            "cost": candidate.instructions,
            "reason": candidate.reason,
            "variants": _variants(layer, candidate, candidate is candidates[0], why_not or {}),
        }
        for candidate in candidates
    ]


def _variants(
    layer: LayerContext, candidate: Candidate, chosen: bool, why_not: Mapping[Kernel, str]
) -> list[dict[str, Any]]:
    """Describe the variants of a kernel: the chosen one first, the others with their rejection reasons."""

    def taken(offer: Implementation) -> bool:
        return chosen and candidate.cost is not None and offer.kernel is candidate.kernel

    def reason(offer: Implementation) -> str | None:
        return None if taken(offer) else offer.failure or why_not.get(offer.kernel, NOT_CHOSEN)

    offers = sorted(candidate.offers, key=taken, reverse=True)
    if not offers and candidate.cost is not None:
        # Kernels of external code generators have no offers.
        offers = [Implementation(candidate.kernel, layer, candidate.cost, candidate.cost)]
    calls = [offer.kernel.lower(layer) for offer in offers]
    return [
        {
            "choices": choices,
            "trades": sorted(trade.name.lower() for trade in offer.kernel.trades),
            "cost": offer.instructions if candidate.offers else offer.cost,
            "cycles": offer.cost if candidate.offers else None,
            "bytes": sum(constants_of(offer.kernel, layer, call).values()),
            "scratch": call.scratch,
            "measured_cycles": offer.measured,
            "reason": reason(offer) if candidate.offers else None,
        }
        for offer, call, choices in zip(offers, calls, distinguish(calls), strict=True)
    ]
