"""Less arena for little or no time, with nothing asked: other variants for the calls that need most.

Only layers whose call needs more than a lower limit change, so that all others keep what they have. A lower
limit is taken if a plan is smaller, constants are not more, and no time is lost, or a part of it
that is at most a tenth of the part of the arena that is saved, and at most 2 %; for few bytes, none.
"""

from __future__ import annotations

from collections.abc import Sequence

from microfold.kernels.band import lowered
from microfold.kernels.call import KernelCall
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.flash_budget import constant_bytes
from microfold.kernels.selection.needs import ArenaPlanner
from microfold.support.frozen import frozen

# Parts of the time that a part of the arena is worth, and the most that is given for any.
TIME_FOR_ARENA, MOST_TIME = 0.1, 0.02
# Bytes of arena for fewer of which no time is given.
FEWEST_BYTES = 512
# Lower limits of which plans are made.
PLANS = 4


@frozen(eq=False)
class _Way:
    """One way to compute a layer: bytes, and `Case.cost`."""

    candidate: Candidate
    call: KernelCall
    need: int
    flash: int
    time: float


def relieve_peak(
    layers: Sequence[Ranking], chosen: Sequence[Candidate], planner: ArenaPlanner
) -> list[Candidate]:
    """The choices, or others for the layers that decide how large the arena is."""
    now = [_way(i, ranking, c, planner) for i, (ranking, c) in enumerate(zip(layers, chosen, strict=True))]
    size = planner.plan([way.candidate.kernel for way in now], [way.call for way in now]).size
    others = _Alternatives(layers, now, planner)
    limits = [limit for limit in others.limits(size) if others.is_cheap(limit, size)]
    for limit in limits[-PLANS:][::-1]:
        ways = others.under(limit)
        lower = planner.plan([way.candidate.kernel for way in ways], [way.call for way in ways]).size
        if lower < size and others.is_cheap(limit, size, lower):
            return [way.candidate for way in ways]
    return [*chosen]


def _way(index: int, ranking: Ranking, candidate: Candidate, planner: ArenaPlanner) -> _Way:
    layer, kernel = ranking.layer, candidate.kernel
    call = lowered(kernel, layer)
    return _Way(
        candidate,
        call,
        planner.need(index, kernel, call),
        constant_bytes(kernel, layer, call),
        candidate.cost or 0.0,
    )


class _Alternatives:
    """What the layers that need most could be computed by instead."""

    def __init__(self, layers: Sequence[Ranking], now: Sequence[_Way], planner: ArenaPlanner):
        self.layers = layers
        self.now = now
        self.planner = planner
        self._ways: dict[int, list[_Way]] = {}

    def of(self, index: int) -> list[_Way]:
        """Those of a layer that need less arena and no more constants, the fastest first."""
        if index not in self._ways:
            ranking, now = self.layers[index], self.now[index]
            variants = [] if ranking.fixed else ranking.variants
            found = [_way(index, ranking, candidate, self.planner) for candidate in variants]
            smaller = [way for way in found if way.need < now.need and way.flash <= now.flash]
            self._ways[index] = sorted(smaller, key=lambda way: (way.time, way.need))
        return self._ways[index]

    def limits(self, size: int) -> list[int]:
        """Lower limits, as far as all layers can meet them, the highest first."""
        found: list[int] = []
        limit = max(way.need for way in self.now) if self.now else 0
        while limit > 0:
            # Next below is what some layer needs, now or instead.
            over = [index for index, way in enumerate(self.now) if way.need >= limit]
            if any(not self.of(index) for index in over):
                break
            ways = [way for index in over for way in self.of(index)] + [*self.now]
            limit = max((way.need for way in ways if way.need < limit), default=0)
            if limit > 0 and all(any(w.need <= limit for w in self.of(index)) for index in over):
                found.append(limit)
            elif limit > 0 and any(min(w.need for w in self.of(index)) > limit for index in over):
                break
        return [limit for limit in found if limit < size]

    def under(self, limit: int) -> list[_Way]:
        """The fastest ways under a limit; what meets it stays."""
        return [
            way if way.need <= limit else next(w for w in self.of(index) if w.need <= limit)
            for index, way in enumerate(self.now)
        ]

    def is_cheap(self, limit: int, size: int, lower: int | None = None) -> bool:
        """Whether no time is lost under a limit, or little for much less arena."""
        before = sum(way.time for way in self.now)
        loss = sum(way.time for way in self.under(limit)) - before
        saved = size - (limit if lower is None else lower)
        price = min(TIME_FOR_ARENA * saved / size, MOST_TIME) if saved >= FEWEST_BYTES else 0.0
        return loss <= before * price
