"""Weights of 16 bits for layers that are computed row by row.

Where a call computes few pixels, what it does once for each channel is most of its time: to convert weights
is part of that. So they are kept converted where the part of the model's time that this saves is at least the
part that it adds to the model's constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from microfold.ir.node import Node
from microfold.kernels.band import lowered
from microfold.kernels.kernel import Trade
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.flash_budget import constant_bytes
from microfold.kernels.selection.ram_budget import ArenaPlanner
from microfold.kernels.selection.worth import refuse


@dataclass(frozen=True, eq=False)
class _Change:
    """Other kernels for all calls of a node.

    Attributes:
        chosen: by the index of the layer.
        saved: of what `Candidate.cost` counts, in a run.
        added: bytes of constants.
    """

    chosen: dict[int, Candidate]
    saved: float
    added: int


def widen_weights(
    layers: Sequence[Ranking], chosen: Sequence[Candidate], planner: ArenaPlanner, limit: int
) -> list[Candidate]:
    """The choices, or others with wider weights for layers that compute rows.

    Args:
        limit: bytes that the arena may have.
    """
    found = [*chosen]
    nodes = {r.layer.whole: None for r in layers if r.layer.band_of is not None and not r.fixed}
    changes = [change for node in nodes for change in _changes(node, layers, chosen)]
    time = sum((c.cost or 0.0) * r.runs for c, r in zip(chosen, layers, strict=True))
    constants = sum({r.layer.whole: _constants(r, c) for r, c in zip(layers, found, strict=True)}.values())
    for change in sorted(changes, key=lambda each: -each.saved / max(each.added, 1)):
        if change.saved * constants < change.added * time or not change.saved > 0:
            continue
        tried = [change.chosen.get(index, candidate) for index, candidate in enumerate(found)]
        kernels = [candidate.kernel for candidate in tried]
        calls = [lowered(kernel, ranking.layer) for kernel, ranking in zip(kernels, layers, strict=True)]
        if planner.fits(kernels, calls, limit):
            found = tried
    return found


def _changes(node: Node, layers: Sequence[Ranking], chosen: Sequence[Candidate]) -> Iterator[_Change]:
    """The fastest variant with wide weights that all calls of a node have."""
    own = [index for index, ranking in enumerate(layers) if ranking.layer.whole is node]
    variants = [_wide(layers[index]) for index in own]
    costs = {
        name: sum(each[name].cost or 0.0 for each in variants)
        for name in variants[0]
        if all(name in each for each in variants)
    }
    if not costs:
        return
    name = min(costs, key=lambda each: costs[each])
    others = {index: each[name] for index, each in zip(own, variants, strict=True)}
    saved = sum(
        ((chosen[index].cost or 0.0) - (other.cost or 0.0)) * layers[index].runs
        for index, other in others.items()
    )
    first = own[0]
    added = _constants(layers[first], others[first]) - _constants(layers[first], chosen[first])
    yield _Change(others, saved, added)


def _wide(ranking: Ranking) -> dict[str, Candidate]:
    """Variants that are refused for nothing but the width of their weights: of each kernel the fastest."""
    found: dict[str, Candidate] = {}
    for candidate in ranking.candidates:
        for offer in candidate.offers:
            case = offer.case
            wide = Trade.WIDE_WEIGHTS in case.kernel.trades
            if not wide or refuse(case, frozenset({Trade.WIDE_WEIGHTS})) is not None:
                continue
            best = found.get(case.kernel.name)
            if best is None or case.cost < (best.cost or 0.0):
                found[case.kernel.name] = Candidate(case.kernel, case.cost, None, candidate.offers)
    return found


def _constants(ranking: Ranking, candidate: Candidate) -> int:
    kernel, layer = candidate.kernel, ranking.layer
    return constant_bytes(kernel, layer, lowered(kernel, layer))
