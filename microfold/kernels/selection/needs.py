"""What the variants of all layers need of the arena, and those whose calls fit a limit."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Protocol

from microfold.kernels.band import lowered
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.cheapest import Candidate, Ranking, candidates, in_order
from microfold.kernels.selection.least_flash import Memory
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.policy import Policy
from microfold.kernels.selection.variants import Offer
from microfold.options import OPTIMIZE
from microfold.support.frozen import frozen

# Plans that are made to find kernels which agree on where tensors lie.
AGREEING_PLANS = 100


class ArenaPlanner(Protocol):
    """The arena of choices, for the calls in one order."""

    makes_many_plans: ClassVar[bool]
    """Whether plans take so little time that kernels can be found by comparing them."""
    may_reorder: ClassVar[bool]
    """Whether there may be another order."""

    def plan(
        self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], wanted: int | None = None
    ) -> Memory:
        """With the calls in this order; `wanted`: bytes that are few enough."""
        ...

    def fits(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], limit: int) -> bool:
        """Whether an arena with so many bytes is found, with the calls in this order or in a better one."""
        ...

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Bytes of the smallest arena for what is alive in a layer's call, in this order."""
        ...

    def need_in_any_order(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Bytes that no order makes unnecessary."""
        ...

    def reordered(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> ArenaPlanner | None:
        """For the better order that these kernels have, if one was found."""
        ...


@frozen(eq=False)
class Option:
    """A variant of a candidate with the bytes of arena that its call needs."""

    candidate: Candidate
    offer: Offer
    call: KernelCall
    need: int

    @property
    def chosen(self) -> Candidate:
        return self.candidate.variant(self.offer)


class Needs:
    """What the variants of all layers need, in one order of the calls."""

    def __init__(self, layers: Sequence[Ranking], model: Model, planner: ArenaPlanner):
        self.layers = layers
        self.model = model
        self.planner = planner
        self._options: dict[tuple[int, str], list[tuple[Candidate, list[Option]]]] = {}
        self._worthwhile: dict[int, list[Option]] = {}
        self._least: dict[int, tuple[int, Candidate, KernelCall]] = {}

    def options(self, index: int, level: str) -> list[tuple[Candidate, list[Option]]]:
        """The kernels of a layer that can compute it, each with its variants."""
        if (index, level) not in self._options:
            layer = self.layers[index].layer
            self._options[index, level] = [
                (candidate, [self._option(index, candidate, offer) for offer in candidate.offers])
                for candidate in candidates(layer, Policy(level, self.model, ram_limited=True))
            ]
        return self._options[index, level]

    def _option(self, index: int, candidate: Candidate, offer: Offer) -> Option:
        call = self.lowered(offer.case.kernel, index)
        return Option(candidate, offer, call, self.planner.need(index, offer.case.kernel, call))

    def lowered(self, kernel: Kernel, index: int) -> KernelCall:
        """The call of a layer."""
        return lowered(kernel, self.layers[index].layer)

    def worthwhile(self, index: int) -> list[Option]:
        """All variants of a layer that some level takes."""
        if index not in self._worthwhile:
            self._worthwhile[index] = [*self._worthwhile_at(index, OPTIMIZE)]
        return self._worthwhile[index]

    def _worthwhile_at(self, index: int, levels: Iterable[str]) -> Iterator[Option]:
        for level in levels:
            for _, options in self.options(index, level):
                yield from (option for option in options if option.offer.worth_it)

    def has_fitting(self, index: int, limit: int, level: str) -> bool:
        """Whether a variant of a layer needs no more than a limit.

        Args:
            level: looked at first, and mostly alone: other levels' variants take time to be found.
        """
        if self.layers[index].fixed:
            return self.least(index)[0] <= limit
        levels = dict.fromkeys((level, *OPTIMIZE))
        return any(option.need <= limit for option in self._worthwhile_at(index, levels))

    def least(self, index: int) -> tuple[int, Candidate, KernelCall]:
        """Of the variants of a layer the one that needs least, the fastest of equals: bytes, and its call."""
        if index not in self._least:
            self._least[index] = self._find_least(index)
        return self._least[index]

    def _find_least(self, index: int) -> tuple[int, Candidate, KernelCall]:
        ranking = self.layers[index]
        if ranking.fixed:
            candidate = ranking.candidates[0]
            call = self.lowered(candidate.kernel, index)
            return self.planner.need(index, candidate.kernel, call), candidate, call
        found = min(self.worthwhile(index), key=lambda o: (o.need, o.offer.case.cost))
        return found.need, found.chosen, found.call

    def plan(self, chosen: Sequence[Candidate]) -> int:
        """Bytes of the arena."""
        kernels = [candidate.kernel for candidate in chosen]
        return self.planner.plan(kernels, [self.lowered(k, i) for i, k in enumerate(kernels)]).size

    @property
    def leanest(self) -> list[Candidate]:
        """Of all layers what needs least."""
        return [self.least(index)[1] for index in range(len(self.layers))]

    @cached_property
    def agreeing(self) -> tuple[int, list[Candidate]]:
        """The smallest arena found, and its kernels: the leanest ones, but for some that agree better.

        Layers are changed one by one, then two neighbours at once, as long as that makes the arena smaller.
        """
        chosen = self.leanest
        size, plans = self.plan(chosen), 1
        fullest = max((self.least(index)[0] for index in range(len(self.layers))), default=0)
        smaller = True
        while smaller and size > fullest and self.planner.makes_many_plans:
            smaller = False
            for change in self._changes(size):
                if plans == AGREEING_PLANS:
                    return size, chosen
                other = [change[i] if i in change else chosen[i] for i in range(len(chosen))]
                found, plans = self.plan(other), plans + 1
                if found < size:
                    size, chosen, smaller = found, other, True
                    break
        return size, chosen

    def _changes(self, size: int) -> Iterator[dict[int, Candidate]]:
        """Other kernels of a layer, or of two neighbours, none of which alone needs so much."""
        others: dict[int, list[Candidate]] = {}
        for index in self._free:
            least, _, call = self.least(index)
            seen = {(least, call.scratch)}
            others[index] = []
            for option in self.worthwhile(index):
                asks = option.need, option.call.scratch
                if option.need < size and asks not in seen:
                    seen.add(asks)
                    others[index].append(option.chosen)
        for index, found in others.items():
            yield from ({index: one} for one in found)
        for index, found in others.items():
            after = others.get(index + 1, [])
            yield from ({index: one, index + 1: two} for one, two in itertools.product(found, after))

    @property
    def _free(self) -> list[int]:
        """The layers that are left to choose for."""
        return [index for index, ranking in enumerate(self.layers) if not ranking.fixed]

    def limits(self, limit: int) -> list[int]:
        """The limit, and lower ones that leave less to choose from."""
        needs = {option.need for index in self._free for option in self.worthwhile(index)}
        return [limit, *sorted((need for need in needs if need < limit), reverse=True)]

    def affected(self, limit: int, lower: int) -> list[int]:
        """The layers that have variants between two limits."""
        return [i for i in self._free if any(lower < o.need <= limit for o in self.worthwhile(i))]


class Fitting:
    """The kernels whose calls fit.

    Args:
        limits: bytes of arena that the call of each layer may need.
        only: the kernels that are left; None: all that fit.
    """

    def __init__(self, needs: Needs, limits: Sequence[int], only: Sequence[Kernel] | None = None):
        self._needs = needs
        self._limits = limits
        self._only = only

    def candidates(self, index: int, level: str) -> list[Candidate]:
        """What a level would consider for a layer, the best first."""
        options = self._needs.options(index, level)
        limit = self._limits[index]
        if self._only is not None:
            only = self._only[index]
            options = [(c, [o for o in variants if o.offer.case.kernel is only]) for c, variants in options]
            options = [(candidate, variants) for candidate, variants in options if variants]
        found = [_fitting(candidate, variants, limit) for candidate, variants in options]
        return in_order(found, Policy(level, self._needs.model, ram_limited=True))

    def rankings(self, level: str) -> list[Ranking]:
        """All layers; where a level has nothing that fits, with what others have."""
        return [
            ranking if ranking.fixed else replace(ranking, candidates=self._any(index, level))
            for index, ranking in enumerate(self._needs.layers)
        ]

    def _any(self, index: int, level: str) -> list[Candidate]:
        levels = [level, *(other for other in OPTIMIZE if other != level)]
        found = (self.candidates(index, each) for each in levels)
        return next(each for each in found if each[0].cost is not None)


def _fitting(candidate: Candidate, options: Sequence[Option], limit: int) -> Candidate:
    """The best variant that fits, in the place of the one that would be best."""
    if candidate.cost is None:
        return candidate

    def judged(option: Option) -> Offer:
        return (
            option.offer if option.need <= limit else replace(option.offer, reason=_too_much(option, limit))
        )

    taken = next((o for o in options if o.offer.worth_it and o.need <= limit), None)
    if taken is None:
        least = min((o for o in options if o.offer.worth_it), key=lambda o: o.need)
        return Candidate(candidate.kernel, None, _too_much(least, limit), [judged(o) for o in options])
    case = taken.offer.case
    others = [judged(option) for option in options if option is not taken]
    return Candidate(case.kernel, case.cost, None, [Offer(case, None), *others])


def _too_much(option: Option, limit: int) -> str:
    return f"its call needs {option.need} bytes of arena, over {limit}"
