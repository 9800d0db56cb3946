"""The kernels considered for layers, with all variants that they offer, as data."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.kernels.call import KernelCall, SpecValue
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate
from microfold.kernels.selection.flash_budget import constant_bytes
from microfold.report.structure import Report


def describe_candidates(layer: LayerContext, candidates: Sequence[Candidate]) -> list[Report]:
    """Of each kernel its cost or the reason why not, and its variants, in the order of the selection."""
    return [
        {
            "kernel": candidate.kernel.name,
            "cost": candidate.cost,
            "reason": candidate.reason,
            "variants": _variants(layer, candidate),
        }
        for candidate in candidates
    ]


def _variants(layer: LayerContext, candidate: Candidate) -> list[Report]:
    found: list[tuple[Kernel, float, str | None]] = [
        (offer.case.kernel, offer.case.instructions, offer.reason) for offer in candidate.offers
    ]
    if not found and candidate.cost is not None:
        # Of an external code generator.
        found = [(candidate.kernel, candidate.cost, None)]
    calls = [kernel.lower(layer) for kernel, _, _ in found]
    return [
        {
            "choices": choices,
            "trades": sorted(trade.name.lower() for trade in kernel.trades),
            "cost": cost,
            "bytes": constant_bytes(kernel, layer, call),
            "scratch": call.scratch,
            "reason": reason,
        }
        for (kernel, cost, reason), call, choices in zip(found, calls, distinguish(calls), strict=True)
    ]


def distinguish(calls: Sequence[KernelCall]) -> list[dict[str, SpecValue]]:
    """What tells the calls of a kernel's variants apart: as few choices of their functions as that takes.

    Where functions are the same, numbers of the layer do.
    """
    described = [
        {name: value for name, value in call.parameters.items() if isinstance(value, int)}
        | dict(call.function.spec)
        for call in calls
    ]
    names = [name for call in calls for name, _ in call.function.spec]
    names += [name for known in described for name in known]
    kept: list[str] = []
    parts = 1
    for name in dict.fromkeys(names):
        more = len({tuple(known.get(key) for key in (*kept, name)) for known in described})
        if more > parts:
            kept.append(name)
            parts = more
    return [{name: known[name] for name in kept if name in known} for known in described]
