"""Kernels under a budget of flash: the fastest choice whose constants fit.

Every layer starts with its fastest kernel. While the constants exceed the budget, the one exchange is
made that costs the fewest cycles per byte saved. Layers that compute rows or columns of one read the same
weights: they are exchanged together, and what they share is counted once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from microfold.kernels.band import lowered
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, candidates
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.policy import Policy
from microfold.kernels.selection.variant import constant_arrays, constants_of
from microfold.options import OPTIMIZE
from microfold.support.frozen import frozen


@frozen
class Choice:
    """One way to compute layers that read the same constants of the model.

    Attributes:
        candidates: by the layers' indices.
        cost: of a run of the model, `Case.cost`.
        flash: bytes of constants.
    """

    candidates: Mapping[int, Candidate]
    cost: float
    flash: int


# The kernels of a layer, by its index, that a level would consider, the best first.
Considered = Callable[[int, str], Sequence[Candidate]]


def select_within(
    flash: int,
    layers: Sequence[LayerContext],
    model: Model,
    *,
    runs: Sequence[int] | None = None,
    considered: Considered | None = None,
) -> list[Candidate] | int:
    """The choice for each layer.

    Args:
        flash: bytes that all constants together may have.
        layers: each with at least one kernel that fits.
        runs: how often each is computed; default: once.
        considered: default: whatever kernels there are.

    Returns:
        The choices, or the bytes that the smallest kernels need where nothing fits.
    """

    def all_candidates(index: int, level: str) -> Sequence[Candidate]:
        return candidates(layers[index], Policy(level, model))

    considered = considered or all_candidates
    runs = [1] * len(layers) if runs is None else runs
    options = [_worthwhile(_choices(unit, layers, runs, considered)) for unit in _units(layers)]
    chosen = [choices[0] for choices in options]
    needed = sum(choice.flash for choice in chosen)
    best = [exchange for index in range(len(options)) if (exchange := _exchange(index, chosen, options))]
    heapq.heapify(best)
    while needed > flash:
        if not best:
            return needed
        _, index, position = heapq.heappop(best)
        needed -= chosen[index].flash - options[index][position].flash
        chosen[index] = options[index][position]
        if exchange := _exchange(index, chosen, options):
            heapq.heappush(best, exchange)
    _spend(flash - needed, chosen, options)
    found = {index: candidate for choice in chosen for index, candidate in choice.candidates.items()}
    return [found[index] for index in range(len(layers))]


def _spend(left: int, chosen: list[Choice], options: Sequence[Sequence[Choice]]) -> None:
    """Uses bytes that exchanges left over, as they took whole steps: what saves most comes first.

    Args:
        left: bytes.
        chosen: is changed.
    """

    def saving() -> tuple[float, int, Choice] | None:
        fitting = [
            (now.cost - other.cost, index, other)
            for index, now in enumerate(chosen)
            for other in options[index]
            if other.cost < now.cost and other.flash - now.flash <= left
        ]
        return max(fitting, key=lambda each: (each[0], -each[1]), default=None)

    while (best := saving()) is not None:
        _, index, other = best
        left -= other.flash - chosen[index].flash
        chosen[index] = other


def _exchange(
    index: int, chosen: Sequence[Choice], options: Sequence[Sequence[Choice]]
) -> tuple[float, int, int] | None:
    """The exchange of one choice that costs the fewest cycles per byte: cost, index, option."""
    now = chosen[index]
    return min(
        (
            ((other.cost - now.cost) / (now.flash - other.flash), index, position)
            for position, other in enumerate(options[index])
            if other.flash < now.flash
        ),
        default=None,
    )


def _worthwhile(choices: Iterable[Choice]) -> list[Choice]:
    """The choices that no other one beats in both respects, fastest and largest first."""
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda choice: (choice.cost, choice.flash)):
        if not kept or choice.flash < kept[-1].flash:
            kept.append(choice)
    return kept


def _units(layers: Sequence[LayerContext]) -> list[list[int]]:
    """Rows and columns by the constants of the model that they read; all else by itself."""
    found: dict[Hashable, list[int]] = {}
    for index, layer in enumerate(layers):
        whole = layer.band_of
        read = tuple(v for v in whole.operands if v in layer.constants) if whole is not None else ()
        found.setdefault(read or index, []).append(index)
    return [*found.values()]


def _choices(
    unit: Sequence[int], layers: Sequence[LayerContext], runs: Sequence[int], considered: Considered
) -> Iterator[Choice]:
    """What any level would consider.

    Of several layers, the fastest and the smallest choice of each; and with each set of constants the fastest
    ones that read it, where there are any.
    """
    own = [[*_own_choices(index, layers[index], runs[index], considered)] for index in unit]
    if len(own) == 1:
        yield from own[0]
        return
    sets = [
        [(_constants(choice, layers[i]), choice) for choice in each]
        for i, each in zip(unit, own, strict=True)
    ]
    fastest = [min(each, key=lambda pair: pair[1].cost) for each in sets]
    smallest = [min(each, key=lambda pair: (pair[1].flash, pair[1].cost)) for each in sets]
    reading = [_fastest_of_each(each) for each in sets]
    for others in (fastest, smallest):
        yield _together(others)
        for key in dict.fromkeys(key for each in reading for key in each):
            yield _together([each.get(key, other) for each, other in zip(reading, others, strict=True)])


# Bytes of constants by their contents.
_Constants = Mapping[Hashable, int]


def _fastest_of_each(sets: Sequence[tuple[_Constants, Choice]]) -> dict[Hashable, tuple[_Constants, Choice]]:
    """The fastest choice with each set of constants."""
    found: dict[Hashable, tuple[_Constants, Choice]] = {}
    for constants, choice in sorted(sets, key=lambda pair: pair[1].cost):
        found.setdefault(frozenset(constants), (constants, choice))
    return found


def _together(chosen: Sequence[tuple[_Constants, Choice]]) -> Choice:
    """Choices of several layers as one."""
    candidates = {i: candidate for _, choice in chosen for i, candidate in choice.candidates.items()}
    constants = {key: size for each, _ in chosen for key, size in each.items()}
    return Choice(candidates, sum(choice.cost for _, choice in chosen), sum(constants.values()))


def _own_choices(index: int, layer: LayerContext, runs: int, considered: Considered) -> Iterator[Choice]:
    """Those of one layer."""
    for level in OPTIMIZE:
        for candidate in considered(index, level):
            if candidate.cost is not None:
                size = constant_bytes(candidate.kernel, layer, lowered(candidate.kernel, layer))
                yield Choice({index: candidate}, candidate.cost * runs, size)


def _constants(choice: Choice, layer: LayerContext) -> _Constants:
    """What the choice for one layer reads."""
    (candidate,) = choice.candidates.values()
    return constants_of(candidate.kernel, layer, lowered(candidate.kernel, layer))


def constant_bytes(kernel: Kernel, layer: LayerContext, call: KernelCall) -> int:
    """Of a call's own constants, and of those that its kernel takes as the model has them."""
    return sum(array.nbytes for _, array in constant_arrays(kernel, layer, call))
