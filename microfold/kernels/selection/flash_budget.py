"""Kernels under a budget of flash: the fastest choice whose constants fit.

Every layer starts with its fastest kernel. While the constants exceed the budget, the one exchange is
made that costs the fewest cycles per byte saved.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from microfold.kernels.band import lowered
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, candidates
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.policy import Policy
from microfold.options import OPTIMIZE


@dataclass(frozen=True)
class Choice:
    """One way to compute a layer.

    Attributes:
        cost: of a run of the model, `Case.cost`.
        flash: bytes of constants.
    """

    candidate: Candidate
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
    options = [_worthwhile(layer, i, runs[i], considered) for i, layer in enumerate(layers)]
    chosen = [choices[0] for choices in options]
    needed = sum(choice.flash for choice in chosen)
    best = [exchange for index in range(len(layers)) if (exchange := _exchange(index, chosen, options))]
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
    return [choice.candidate for choice in chosen]


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
    """The exchange of one layer's choice that costs the fewest cycles per byte: cost, layer, option."""
    now = chosen[index]
    return min(
        (
            ((other.cost - now.cost) / (now.flash - other.flash), index, position)
            for position, other in enumerate(options[index])
            if other.flash < now.flash
        ),
        default=None,
    )


def _worthwhile(layer: LayerContext, index: int, runs: int, considered: Considered) -> list[Choice]:
    """The choices of a layer that no other one beats in both respects, fastest and largest first."""
    found = sorted(_choices(layer, index, runs, considered), key=lambda choice: (choice.cost, choice.flash))
    kept: list[Choice] = []
    for choice in found:
        if not kept or choice.flash < kept[-1].flash:
            kept.append(choice)
    return kept


def _choices(layer: LayerContext, index: int, runs: int, considered: Considered) -> Iterator[Choice]:
    """What any level would consider."""
    for level in OPTIMIZE:
        for candidate in considered(index, level):
            if candidate.cost is not None:
                size = constant_bytes(candidate.kernel, layer, lowered(candidate.kernel, layer))
                yield Choice(candidate, candidate.cost * runs, size)


def constant_bytes(kernel: Kernel, layer: LayerContext, call: KernelCall) -> int:
    """Of a call's own constants, and of those that its kernel takes as the model has them."""
    plain = (layer.array(index) for index in kernel.data_inputs(layer))
    arrays = (*(constant.array for constant in call.constants.values()), *plain)
    return sum(array.nbytes for array in arrays if array is not None)
