"""Kernels under a budget of RAM: of each layer only the variants whose call fits.

What a call needs does not depend on other layers' kernels: it is the smallest arena for what is alive in it,
overlaps and scratch included. So a limit is a filter in front of the selection there is. Where a plan does
not meet the limit all the same, since neighbours pull a tensor to different places, a lower one is found. If
none is, kernels that need more for their own call are tried, one by one: they may agree better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from microfold.errors import BudgetError, InputError
from microfold.kernels.selection.cheapest import Candidate, Ranking, run_cost
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.needs import ArenaPlanner, Fitting, Needs
from microfold.support.frozen import frozen

# Of the time that a choice must stay below, what the fastest kernels may take for others to be looked for
# where their plan does not fit.
CLEARLY = 0.96


@frozen
class RamBudget:
    """Bytes for arena and state together, and those of the state."""

    total: int
    state: int

    @property
    def arena(self) -> int:
        return self.total - self.state


def select_within_ram(
    budget: RamBudget,
    layers: Sequence[Ranking],
    model: Model,
    planner: ArenaPlanner,
    level: str,
    choose: Callable[[Fitting], list[Candidate]],
    most: float = math.inf,
) -> list[Candidate]:
    """The choice for each layer whose arena fits: the fastest that orders of calls lead to.

    Args:
        layers: each with at least one kernel that fits the target.
        level: that is asked for.
        choose: the selection among the kernels whose calls fit; raises InputError if it refuses all of them.
        most: `run_cost` from which on the caller most likely takes another choice: where kernels would have
            to be slower to fit, none are looked for that hardly take less.

    Raises:
        InputError: no plan that was found fits, and takes less than that; or what `choose` raises.
    """
    given = Needs(layers, model, planner)
    orders = [given]
    if planner.may_reorder:
        leanest = [given.least(index)[1:] for index in range(len(layers))]
        other = planner.reordered([each.kernel for each, _ in leanest], [call for _, call in leanest])
        orders += [Needs(layers, model, other)] if other is not None else []
    found: list[list[Candidate]] = []
    refusals: list[InputError] = []
    for needs in orders:
        try:
            choice = _fitting_choice(needs, budget.arena, level, choose, most)
        except InputError as refusal:
            refusals.append(refusal)
        else:
            found += [choice] if choice is not None else []
    if found:
        return min(found, key=lambda choice: sum(candidate.cost or 0.0 for candidate in choice))
    if refusals:
        raise refusals[0]
    if math.isfinite(most):
        raise InputError("no kernels that fit take less time")
    raise _why_none(orders, budget)


def _fitting_choice(
    needs: Needs,
    limit: int,
    level: str,
    choose: Callable[[Fitting], list[Candidate]],
    most: float,
) -> list[Candidate] | None:
    """A choice whose plan fits; None if there is none, or the caller takes another one, see `most`.

    If the limit alone does not make it fit, the highest one that does is looked for by bisection; then layers
    get the first limit back, one by one, where plans still fit.
    """
    layers = range(len(needs.layers))

    def choice(limits: Sequence[int]) -> list[Candidate]:
        return choose(Fitting(needs, [max(each, needs.least(i)[0]) for i, each in enumerate(limits)]))

    def fitting(chosen: list[Candidate]) -> list[Candidate] | None:
        kernels = [candidate.kernel for candidate in chosen]
        calls = [needs.lowered(kernel, index) for index, kernel in enumerate(kernels)]
        return chosen if needs.planner.fits(kernels, calls, limit) else None

    if not all(needs.has_fitting(index, limit, level) for index in layers):
        return None
    fastest = choose(Fitting(needs, [limit for _ in layers]))
    chosen = fitting(fastest)
    if chosen is not None or run_cost(needs.layers, fastest) > CLEARLY * most:
        return chosen
    lower = needs.limits(limit)
    fails, fits = 0, len(lower) - 1
    chosen = fitting(choice([lower[fits] for _ in layers]))
    if chosen is None:
        return _agreeing_choice(needs, limit, choose)
    while fits - fails > 1:
        middle = (fails + fits) // 2
        better = fitting(choice([lower[middle] for _ in layers]))
        if better is not None:
            chosen, fits = better, middle
        else:
            fails = middle
    limits = [lower[fits] for _ in layers]
    for index in needs.affected(limit, lower[fits]):
        better = fitting(choice([*limits[:index], limit, *limits[index + 1 :]]))
        if better is not None:
            chosen, limits[index] = better, limit
    return chosen


def _agreeing_choice(
    needs: Needs, limit: int, choose: Callable[[Fitting], list[Candidate]]
) -> list[Candidate] | None:
    """That of kernels that need more for their own calls, but agree better, if their plan fits."""
    size, agreeing = needs.agreeing
    if size > limit:
        return None
    return choose(Fitting(needs, [limit for _ in needs.layers], [each.kernel for each in agreeing]))


def _why_none(orders: Sequence[Needs], budget: RamBudget) -> BudgetError:
    """What decides, and whether that is a proof."""
    given = orders[0]
    least = [given.least(index) for index in range(len(given.layers))]
    smallest = min(needs.agreeing[0] for needs in orders)
    any_order = [_least_in_any_order(given, index) for index in range(len(least))]
    index = max(range(len(least)), key=lambda i: least[i][0])
    layer, (need, leanest, _) = given.layers[index].layer, least[index]
    found = (
        f"the state takes {budget.state}, layer {index} ({layer.node.op.name}) "
        f"{layer.node.outputs[0].brief!r} alone needs {need} with the leanest kernel, "
        f"{leanest.kernel.name}, and the smallest arena found has {smallest}"
    )
    if max(any_order) > budget.arena:
        proof = f"no order of the layers and no kernels need less than {max(any_order)}, which is proved"
    elif need > budget.arena:
        proof = "in this order of the layers none is smaller, which is proved; of other orders it is not"
    else:
        proof = "that none is smaller is not proved"
    hint = "make this layer's tensors smaller"
    return BudgetError.of_ram(budget.total, [found, proof], smallest + budget.state, hint)


def leanest_size(layers: Sequence[Ranking], model: Model, planner: ArenaPlanner) -> int:
    """Bytes of the arena with the kernels that need least."""
    needs = Needs(layers, model, planner)
    return needs.plan(needs.leanest)


def _least_in_any_order(needs: Needs, index: int) -> int:
    """Bytes that no variant of a layer can do without, whatever the order."""
    ranking, planner = needs.layers[index], needs.planner
    if ranking.fixed:
        _, candidate, call = needs.least(index)
        return planner.need_in_any_order(index, candidate.kernel, call)
    options = needs.worthwhile(index)
    return min(planner.need_in_any_order(index, o.offer.case.kernel, o.call) for o in options)
