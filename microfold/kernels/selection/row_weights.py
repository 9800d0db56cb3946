"""Weights of 16 bits for layers that are computed row by row.

Where a call computes few pixels, what it does once for each channel is most of its time: to convert weights
is part of that. So they are kept converted where the part of the model's time that this saves is at least the
part that it adds to the model's constants.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from microfold.ir.node import Node
from microfold.kernels.band import lowered
from microfold.kernels.kernel import Trade
from microfold.kernels.selection.cheapest import Candidate, Ranking, lowered_calls, run_cost
from microfold.kernels.selection.flash_budget import constant_bytes
from microfold.kernels.selection.needs import ArenaPlanner
from microfold.support.frozen import frozen

# Times as long as with constants of their own that calls of a node may take to share them.
SHARED_TIME = 1.25


@frozen(eq=False)
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
    layers: Sequence[Ranking], chosen: Sequence[Candidate], planner: ArenaPlanner, limit: int | None
) -> list[Candidate]:
    """The choices, or others with wider weights for layers that compute rows.

    Args:
        limit: bytes that the arena may have; None: as many as it has with these choices.
    """
    most = limit if limit is not None else planner.plan(*lowered_calls(layers, chosen)).size
    found = [*chosen]
    nodes = {r.layer.whole: None for r in layers if r.layer.band_of is not None and not r.fixed}
    changes = [change for node in nodes for change in _changes(node, layers, chosen)]
    time = run_cost(layers, chosen)
    constants = sum({r.layer.whole: _constants(r, c) for r, c in zip(layers, found, strict=True)}.values())
    for change in sorted(changes, key=lambda each: -each.saved / max(each.added, 1)):
        if change.saved * constants < change.added * time or not change.saved > 0:
            continue
        tried = [change.chosen.get(index, candidate) for index, candidate in enumerate(found)]
        if planner.fits(*lowered_calls(layers, tried), most):
            found = tried
    return found


def share_constants(
    layers: Sequence[Ranking], chosen: Sequence[Candidate], planner: ArenaPlanner, limit: int | None
) -> list[Candidate]:
    """The choices, or others for nodes of which calls for few rows do not read the constants of the others.

    Args:
        limit: bytes that the arena may have; None: as many as it has with these choices.
    """
    nodes: dict[Node, list[int]] = {}
    for index, ranking in enumerate(layers):
        if not ranking.fixed:
            nodes.setdefault(ranking.layer.whole, []).append(index)
    several = [own for own in nodes.values() if len(own) > 1]
    apart = [own for own in several if len({_key(layers[i], chosen[i]) for i in own}) > 1]
    if not apart:
        return [*chosen]
    most = limit if limit is not None else planner.plan(*lowered_calls(layers, chosen)).size

    def ways_of(nodes: Sequence[Sequence[int]]) -> list[list[dict[int, Candidate]]]:
        found = (_with_equal_constants(own, layers, chosen, planner, most) for own in nodes)
        return [ways for ways in found if ways]

    def needs(way: Mapping[int, Candidate]) -> int:
        return max(planner.need(i, c.kernel, lowered(c.kernel, layers[i].layer)) for i, c in way.items())

    found, agree = [*chosen], True
    for ways in ways_of(apart):
        for way in ways:
            tried = _changed(found, way)
            if planner.fits(*lowered_calls(layers, tried), most):
                found = tried
                break
        else:
            agree = False
    if not agree:
        # Where the arena is tight, what needs least agrees best.
        leanest = [min(ways, key=needs) for ways in ways_of(several)]
        together = {index: candidate for way in leanest for index, candidate in way.items()}
        tried = _changed(chosen, together)
        if planner.fits(*lowered_calls(layers, tried), most):
            found = tried
    return found


def _changed(chosen: Sequence[Candidate], way: Mapping[int, Candidate]) -> list[Candidate]:
    return [way.get(index, candidate) for index, candidate in enumerate(chosen)]


def _with_equal_constants(
    own: Sequence[int],
    layers: Sequence[Ranking],
    chosen: Sequence[Candidate],
    planner: ArenaPlanner,
    limit: int,
) -> list[dict[int, Candidate]]:
    """Variants of some layers that read the same constants, and whose calls fit: the fastest ones first."""
    wide = any(Trade.WIDE_WEIGHTS in chosen[index].kernel.trades for index in own)
    ways: list[dict[Hashable, Candidate]] = []
    for index in own:
        ranking = layers[index]
        fastest: dict[Hashable, Candidate] = {}
        for each in (
            chosen[index],
            *ranking.variants,
            *(ranking.variants_with(Trade.WIDE_WEIGHTS) if wide else ()),
        ):
            if planner.need(index, each.kernel, lowered(each.kernel, ranking.layer)) > limit:
                continue
            key = _key(ranking, each)
            if key not in fastest or (each.cost or 0.0) < (fastest[key].cost or 0.0):
                fastest[key] = each
        ways.append(fastest)

    def time(key: Hashable) -> float:
        pairs = zip(ways, own, strict=True)
        return sum((fastest[key].cost or 0.0) * layers[index].runs for fastest, index in pairs)

    most = SHARED_TIME * sum((chosen[index].cost or 0.0) * layers[index].runs for index in own)
    common = [key for key in ways[0] if all(key in each for each in ways) and time(key) <= most]
    return [
        {index: fastest[key] for index, fastest in zip(own, ways, strict=True)}
        for key in sorted(common, key=time)
    ]


def _key(ranking: Ranking, candidate: Candidate) -> Hashable:
    """The constants of a layer's calls."""
    call = lowered(candidate.kernel, ranking.layer)
    arrays = frozenset((each.record, each.array.tobytes()) for each in call.constants.values())
    plain = candidate.kernel.data_inputs(ranking.layer)
    return arrays, tuple(index for index in plain if ranking.layer.array(index) is not None)


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
    for wide in ranking.variants_with(Trade.WIDE_WEIGHTS):
        best = found.get(wide.kernel.name)
        if best is None or (wide.cost or 0.0) < (best.cost or 0.0):
            found[wide.kernel.name] = wide
    return found


def _constants(ranking: Ranking, candidate: Candidate) -> int:
    kernel, layer = candidate.kernel, ranking.layer
    return constant_bytes(kernel, layer, lowered(kernel, layer))
