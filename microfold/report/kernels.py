"""The kernels considered for layers, with all variants that they offer, as data."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate
from microfold.kernels.selection.distinguish import distinguish
from microfold.kernels.selection.flash_budget import constant_bytes
from microfold.kernels.selection.variants import Offer
from microfold.report.structure import Report

# Why the model has another variant or kernel than a layer alone would.
FOR_THE_MODEL = "better for this layer alone; another one suits the arena or the flash of the whole model"


def describe_candidates(layer: LayerContext, candidates: Sequence[Candidate]) -> list[Report]:
    """Return each kernel's cost or the reason why not, and its variants, in the order of the selection."""
    return [
        {
            "kernel": candidate.kernel.name,
            "cost": candidate.instructions,
            "reason": candidate.reason,
            "variants": _variants(layer, candidate),
        }
        for candidate in candidates
    ]


def _variants(layer: LayerContext, candidate: Candidate) -> list[Report]:
    """Describe the variants of a kernel: its own choice, then the others with the reason why not."""

    def taken(offer: Offer) -> bool:
        return candidate.cost is not None and offer.case.kernel is candidate.kernel

    def reason(offer: Offer) -> str | None:
        return None if taken(offer) else offer.reason or FOR_THE_MODEL

    found: list[tuple[Kernel, float, float | None, str | None, int | None]] = [
        (case.kernel, case.instructions, case.cost, reason(offer), case.measured)
        for offer in sorted(candidate.offers, key=taken, reverse=True)
        for case in [offer.case]
    ]
    if not found and candidate.cost is not None:
        # Of an external code generator.
        found = [(candidate.kernel, candidate.cost, None, None, None)]
    calls = [kernel.lower(layer) for kernel, *_ in found]
    return [
        {
            "choices": choices,
            "trades": sorted(trade.name.lower() for trade in kernel.trades),
            "cost": cost,
            "cycles": cycles,
            "bytes": constant_bytes(kernel, layer, call),
            "scratch": call.scratch,
            "measured_cycles": measured,
            "reason": reason,
        }
        for (kernel, cost, cycles, reason, measured), call, choices in zip(
            found, calls, distinguish(calls), strict=True
        )
    ]
