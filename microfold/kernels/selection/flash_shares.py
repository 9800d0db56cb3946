"""Less flash for little time, with nothing asked.

Functions that serve a small part of the time, or whose code is long and for one window, are replaced by ones
that are there anyway, and weights of 16 bits by bytes, where the part of the flash that is saved, constants
and code, is several times as large as the part of the time that is lost. All of that together takes little
time, and the arena stays as it is. Then loops are written out where the same price says that the time that is
saved is worth the flash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from microfold.ir.node import Node
from microfold.kernels.band import lowered
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.kernel import Trade
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.flash_budget import constant_bytes
from microfold.kernels.selection.needs import ArenaPlanner
from microfold.kernels.selection.policy import Case, Policy
from microfold.support.frozen import frozen

# How many times as large as the part of the time that is lost the part of the flash must be that is saved.
FLASH_FOR_TIME = 3
# Of all time, what all other functions together may take more: of the flash of small models each has a large
# share, but whoever asks for nothing wants speed as well.
MOST_TIME_OF_FUNCTIONS = 0.01
# The same for bytes instead of weights of 16 bits: these take the flash of as many more weights.
MOST_TIME_OF_WEIGHTS = 0.02
# Of all time, that of functions that others may replace.
SMALL_SHARE = 0.02
# Where they have a larger share, what others may take more, of all time, and what they must save of the
# flash: no estimate is so good that the fastest is known.
TIE, TIE_FLASH = 0.0005, 0.02
# Fewer bytes are not worth a change: sizes of code are estimates.
FEWEST_BYTES = 128
# Of the code of a function, what others of the same kernel do not share.
OWN_CODE = 0.8


@frozen(eq=False)
class PricedWay:
    """One way to compute a layer: its time in a run of the model, `Case.cost`, and bytes of constants.

    Attributes:
        node: what is computed, or rows of it.
    """

    node: Node
    candidate: Candidate
    call: KernelCall
    time: float
    flash: int

    @cached_property
    def function(self) -> CFunction:
        return self.call.function

    @cached_property
    def constants_key(self) -> tuple[Node, str]:
        """Ways with equal ones have the same constants."""
        return self.node, self.candidate.kernel.name

    @cached_property
    def own_code(self) -> int:
        """Bytes of the function that no other one of the kernel shares."""
        return int(self.candidate.kernel.function_bytes * OWN_CODE)

    @cached_property
    def shared_code(self) -> int:
        """Bytes of what the kernel's functions share."""
        code = self.candidate.kernel.code
        return code - int(code * OWN_CODE)

    @cached_property
    def wide(self) -> bool:
        return Trade.WIDE_WEIGHTS in self.candidate.kernel.trades


# Other ways for some layers, by their indices.
_Change = Mapping[int, PricedWay]


def balance_shares(
    layers: Sequence[Ranking],
    chosen: Sequence[Candidate],
    policy: Policy,
    planner: ArenaPlanner,
    limit: int | None = None,
) -> list[Candidate]:
    """The choices, or others for layers that take much flash for the time that they save.

    Args:
        limit: bytes that the arena may have; None: as many as it has with these choices.
    """
    ways = [
        _way(r, candidate, _time_of(r, candidate, policy))
        for r, candidate in zip(layers, chosen, strict=True)
    ]
    shares = Shares(layers, ways, policy, planner, limit)
    shares.changed()
    return [way.candidate for way in shares.written_out()]


def _way(ranking: Ranking, candidate: Candidate, time: float) -> PricedWay:
    return _priced(ranking, candidate, lowered(candidate.kernel, ranking.layer), time)


def _time_of(ranking: Ranking, candidate: Candidate, policy: Policy) -> float:
    return Case(candidate.kernel, ranking.layer, policy).cost * ranking.runs


def _priced(ranking: Ranking, candidate: Candidate, call: KernelCall, time: float = 0.0) -> PricedWay:
    layer = ranking.layer
    return PricedWay(layer.whole, candidate, call, time, constant_bytes(candidate.kernel, layer, call))


class Shares:
    """The ways of all layers, and what changes of them save and cost."""

    def __init__(
        self,
        layers: Sequence[Ranking],
        ways: Sequence[PricedWay],
        policy: Policy,
        planner: ArenaPlanner,
        limit: int | None = None,
    ):
        self.layers = layers
        self.ways = [*ways]
        self.policy = policy
        self.planner = planner
        self.limit = limit
        self._ways: dict[Candidate, PricedWay | None] = {}
        self.first = (*ways,)

    @cached_property
    def size(self) -> int:
        """Bytes that the arena may have: by default those before all changes."""
        if self.limit is not None:
            return self.limit
        return self.planner.plan([way.candidate.kernel for way in self.ways], _calls(self.ways)).size

    def _fits(self, ways: Sequence[PricedWay]) -> bool:
        kernels, limit = [way.candidate.kernel for way in ways], self.size
        if self.limit is not None:
            return self.planner.fits(kernels, _calls(ways), limit)
        return self.planner.plan(kernels, _calls(ways), limit).size <= limit

    def changed(self) -> list[PricedWay]:
        """The ways after all changes that pay, the one that pays most first."""
        return self._made(self._changes, self._gain)

    def written_out(self) -> list[PricedWay]:
        """The same with loops that are written out, where that pays."""
        return self._made(self._longer, self._worth_of_time)

    def _made(
        self, changes: Callable[[], Iterator[_Change]], gain_of: Callable[[_Change, int, float], float]
    ) -> list[PricedWay]:
        """The ways after all changes that gain something and fit the arena, the one that gains most first."""
        refused: list[_Change] = []
        while True:
            flash, time = estimated_flash(self.ways), _time(self.ways)
            paying = [(gain_of(each, flash, time), each) for each in changes() if each not in refused]
            gain, change = max(paying, key=lambda pair: pair[0], default=(0.0, {}))
            if gain <= 0:
                return self.ways
            ways = self._after(change)
            if self._fits(ways):
                self.ways = ways
            else:
                refused.append(change)

    def _after(self, change: _Change) -> list[PricedWay]:
        return [change.get(index, way) for index, way in enumerate(self.ways)]

    def _changes(self) -> Iterator[_Change]:
        """Nodes with wide weights, one by one; all layers of a function with little time or long code."""
        total = _time(self.ways)
        users: dict[CFunction, list[int]] = {}
        for index, way in enumerate(self.ways):
            users.setdefault(way.function, []).append(index)
        for function, indices in users.items():
            if any(self.layers[index].fixed for index in indices):
                continue
            for index in indices:
                if self.ways[index].wide:
                    yield from self._narrower(index)
            long = any(Trade.WINDOW_CODE in self.ways[index].candidate.kernel.trades for index in indices)
            now = _time([self.ways[index] for index in indices])
            there = users.keys() - {function}
            if long or now <= SMALL_SHARE * total:
                yield from self._replaced(indices, there)
            else:
                ties = self._replaced(indices, there, TIE * total)
                yield from (change for change in ties if self._is_tie(change, now, total))

    def _is_tie(self, change: _Change, now: float, total: float) -> bool:
        """Whether a change takes next to no time, and saves flash that counts."""
        if _time([*change.values()]) - now > TIE * total:
            return False
        return estimated_flash(self._after(change)) <= (1 - TIE_FLASH) * estimated_flash(self.ways)

    def _narrower(self, index: int) -> Iterator[_Change]:
        """Other ways of a layer; if others compute more rows of its node, the same kernel for all of them."""
        rows = self._rows[self.ways[index].node]
        if len(rows) == 1:
            yield from ({index: way} for way in self._of(index))
        elif rows[0] == index:
            for name in dict.fromkeys(way.candidate.kernel.name for way in self._of(index)):
                ways = [[w for w in self._of(i) if w.candidate.kernel.name == name] for i in rows]
                if all(ways):
                    yield {i: min(w, key=lambda way: way.time) for i, w in zip(rows, ways, strict=True)}

    @cached_property
    def _rows(self) -> Mapping[Node, Sequence[int]]:
        """The layers of each node."""
        found: dict[Node, list[int]] = {}
        for index, ranking in enumerate(self.layers):
            found.setdefault(ranking.layer.whole, []).append(index)
        return found

    def _replaced(
        self, indices: Sequence[int], there: Collection[CFunction], lost: float = math.inf
    ) -> Iterator[_Change]:
        """All layers of a function by functions that are there, and by each one that serves them all.

        Args:
            lost: how much more time they all may take; changes that take more may lack.
        """
        lost += self._to_gain
        ways = [self._of(index, self.ways[index].time + lost) for index in indices]
        others = dict.fromkeys(way.function for way in ways[0] if way.function not in there)
        for functions in (there, *({other} for other in others)):
            fastest = [_fastest(each, functions) for each in ways]
            change = {index: way for index, way in zip(indices, fastest, strict=True) if way is not None}
            if len(change) == len(indices):
                yield change

    def _longer(self) -> Iterator[_Change]:
        """For each function whose loop is written out all layers that it makes faster, constants as now."""
        users: dict[CFunction, dict[int, PricedWay]] = {}
        for index, now in enumerate(self.ways):
            for way in self._fitting(index, self._long[index]):
                if way.flash <= now.flash and way.time < now.time:
                    users.setdefault(way.function, {})[index] = way
        yield from users.values()

    def _gain(self, change: _Change, flash: int, time: float) -> float:
        """The part of the flash that a change saves, less what its time is worth.

        0 if it saves few bytes, or takes more time than is left.

        Args:
            flash, time: before the change.
        """
        after = self._after(change)
        if not self._affords(after):
            return 0.0
        saved = flash - estimated_flash(after)
        if saved < FEWEST_BYTES:
            return 0.0
        return _worth(saved, flash, _time(after) - time, time)

    def _worth_of_time(self, change: _Change, flash: int, time: float) -> float:
        """The same, however little it saves."""
        after = self._after(change)
        return _worth(flash - estimated_flash(after), flash, _time(after) - time, time)

    def _affords(self, ways: Sequence[PricedWay]) -> bool:
        """Whether all changes together take little time."""
        lost = {True: 0.0, False: 0.0}
        for first, way in zip(self.first, ways, strict=True):
            lost[first.wide] += way.time - first.time
        return all(lost[wide] <= most for wide, most in self._to_lose.items())

    @cached_property
    def _to_lose(self) -> Mapping[bool, float]:
        """The time that layers with weights of 16 bits, or others, may take more."""
        total = _time(self.first)
        return {True: MOST_TIME_OF_WEIGHTS * total, False: MOST_TIME_OF_FUNCTIONS * total}

    @cached_property
    def _to_gain(self) -> float:
        """The time that all layers together can take less."""
        fastest = (min((time for _, time in timed), default=math.inf) for timed in self._others)
        return sum([max(way.time - least, 0.0) for way, least in zip(self.first, fastest, strict=True)])

    @cached_property
    def _others(self) -> Sequence[Sequence[tuple[Candidate, float]]]:
        """What else computes each layer and is worth what it gives up, with its time."""
        return [self._timed(ranking, ranking.variants) for ranking in self.layers]

    @cached_property
    def _long(self) -> Sequence[Sequence[tuple[Candidate, float]]]:
        """The same where a loop is written out, whatever code that takes; none of layers that stay."""
        return [
            self._timed(ranking, () if ranking.fixed else ranking.variants_with(Trade.WRITTEN_OUT))
            for ranking in self.layers
        ]

    def _timed(self, ranking: Ranking, candidates: Iterable[Candidate]) -> list[tuple[Candidate, float]]:
        return [(candidate, _time_of(ranking, candidate, self.policy)) for candidate in candidates]

    def _of(self, index: int, most: float = math.inf) -> list[PricedWay]:
        """The other ways of a layer that are worth what they give up and whose call fits the arena.

        Without those that take more time than ever is there, or than `most`.
        """
        first = self.first[index]
        most = min(most, first.time + self._to_lose[first.wide] + self._to_gain)
        return self._fitting(index, [pair for pair in self._others[index] if pair[1] <= most])

    def _fitting(self, index: int, timed: Iterable[tuple[Candidate, float]]) -> list[PricedWay]:
        """Those whose call fits the arena."""
        found = [self._priced(index, candidate, time) for candidate, time in timed]
        return [way for way in found if way is not None]

    def _priced(self, index: int, candidate: Candidate, time: float) -> PricedWay | None:
        """One of a layer's ways; None if its call does not fit the arena."""
        if candidate not in self._ways:
            way = _way(self.layers[index], candidate, time)
            fits = self.planner.need(index, candidate.kernel, way.call) <= self.size
            self._ways[candidate] = way if fits else None
        return self._ways[candidate]


def _fastest(ways: Iterable[PricedWay], functions: Collection[CFunction]) -> PricedWay | None:
    """The fastest way of a layer by one of some functions."""
    return min((way for way in ways if way.function in functions), key=lambda way: way.time, default=None)


def _calls(ways: Sequence[PricedWay]) -> list[KernelCall]:
    return [way.call for way in ways]


def _worth(saved: int, flash: int, lost: float, time: float) -> float:
    """The part of the flash that is saved, less what the time that is lost is worth."""
    return saved / flash - FLASH_FOR_TIME * lost / time


def _time(ways: Sequence[PricedWay]) -> float:
    return sum([way.time for way in ways])


def flash_of(layers: Sequence[Ranking], chosen: Sequence[Candidate], calls: Sequence[KernelCall]) -> int:
    """`estimated_flash` of kernels' calls, whatever time they take."""
    return estimated_flash([_priced(*each) for each in zip(layers, chosen, calls, strict=True)])


def estimated_flash(ways: Sequence[PricedWay]) -> int:
    """Bytes of constants, and of the code of the functions, each counted once.

    The second function of a kernel shares what helpers the first one has. All calls of a kernel that compute
    rows of a node have the same constants.
    """
    constants: dict[tuple[Node, str], int] = {}
    functions: dict[CFunction, PricedWay] = {}
    for way in ways:
        key = way.constants_key
        if key not in constants or way.flash > constants[key]:
            constants[key] = way.flash
        functions[way.function] = way
    shared = {way.candidate.kernel.name: way.shared_code for way in functions.values()}
    own = sum([way.own_code for way in functions.values()])
    return sum(constants.values()) + own + sum(shared.values())
