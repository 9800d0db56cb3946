"""The kernels for the least flash whose arena is not larger than that of the fastest ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from microfold.kernels.band import lowered
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.shared_functions import Option, layer_options, select_smallest
from microfold.support.frozen import frozen


class Memory(Protocol):
    """What is planned for some kernels."""

    @property
    def size(self) -> int:
        """Bytes of the arena."""
        ...

    @property
    def needs(self) -> Sequence[int]:
        """Bytes of an arena for what is alive during each call."""
        ...


# Plans the memory of all layers, each with a kernel and its call.
Planner = Callable[[Sequence[Kernel], Sequence[KernelCall]], Memory]
# What a layer may be computed by, by its index.
_Options = dict[int, list[Option]]


@frozen
class _Choice:
    """Options that are left, the ones chosen from them, and the memory that these need."""

    options: _Options
    chosen: dict[int, Option]
    memory: Memory


def select_least_of_any_arena(layers: Sequence[Ranking]) -> list[Candidate]:
    """The choice for each layer, whatever arena it needs; see `select_smallest`."""
    free = {i: layer_options(r.layer, r.candidates, r.runs) for i, r in enumerate(layers) if not r.fixed}
    chosen = dict(zip(free, select_smallest([*free.values()]), strict=True))
    return [chosen[i].candidate if i in chosen else r.candidates[0] for i, r in enumerate(layers)]


def select_least_flash(layers: Sequence[Ranking], plan: Planner) -> list[Candidate]:
    """The choice for each layer; see `select_smallest`.

    As long as the arena is larger than with the fastest kernels, a layer is denied its choice.

    Args:
        layers: each with at least one kernel that fits.
    """
    fastest = [ranking.candidates[0] for ranking in layers]
    calls = [lowered(c.kernel, ranking.layer) for c, ranking in zip(fastest, layers, strict=True)]
    limit = plan([candidate.kernel for candidate in fastest], calls).size

    def candidates(chosen: dict[int, Option]) -> list[Candidate]:
        return [chosen[i].candidate if i in chosen else c for i, c in enumerate(fastest)]

    def choose(options: _Options) -> _Choice:
        chosen = dict(zip(options, select_smallest([*options.values()]), strict=True))
        taken = [chosen[i].call if i in chosen else call for i, call in enumerate(calls)]
        return _Choice(options, chosen, plan([c.kernel for c in candidates(chosen)], taken))

    free = {i: layer_options(r.layer, r.candidates, r.runs) for i, r in enumerate(layers) if not r.fixed}
    choice = choose(free)
    while choice.memory.size > limit:
        changed = [i for i, option in choice.chosen.items() if option.candidate is not fastest[i]]
        needs = choice.memory.needs
        guilty = [i for i in changed if needs[i] > limit]
        if guilty:
            choice = choose(_without(choice, guilty))
        elif changed:
            # Several layers together: the one whose other choice helps most.
            choice = min((choose(_without(choice, [i])) for i in changed), key=lambda c: c.memory.size)
        else:
            break
    return candidates(choice.chosen)


def _without(choice: _Choice, layers: Sequence[int]) -> _Options:
    """The options without those that these layers have chosen."""
    return {
        i: [o for o in options if i not in layers or o is not choice.chosen[i]]
        for i, options in choice.options.items()
    }
