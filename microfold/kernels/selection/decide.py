"""The kernel of every layer: what the user asks for, for the model as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from microfold.errors import BudgetError
from microfold.kernels.selection.cheapest import Candidate, Ranking, lowered_calls, run_cost
from microfold.kernels.selection.flash_budget import Considered, select_within
from microfold.kernels.selection.flash_shares import balance_shares
from microfold.kernels.selection.least_flash import (
    Planner,
    select_least_flash,
    select_least_of_any_arena,
)
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.needs import ArenaPlanner, Fitting
from microfold.kernels.selection.peak_relief import relieve_peak
from microfold.kernels.selection.policy import Policy
from microfold.kernels.selection.ram_budget import RamBudget, select_within_ram
from microfold.options import Options


def decide(
    layers: Sequence[Ranking],
    model: Model,
    options: Options,
    planner: ArenaPlanner,
    state: int,
    most: float = math.inf,
) -> list[Candidate]:
    """The choice for each layer.

    Args:
        layers: each with at least one kernel that fits.
        planner: the arena of a choice.
        state: bytes of RAM that the model keeps from run to run.
        most: `run_cost` from which on the caller most likely takes another choice: its flash may be as it is.

    Raises:
        InputError: no kernels fit what the options allow.
    """
    balanced = options.flash is None and options.optimize == "balanced"
    if options.ram is not None:
        budget = RamBudget(options.ram, state)
        choose = partial(_of_fitting, model, options)
        chosen = select_within_ram(budget, layers, model, planner, options.optimize, choose, most)
        if not balanced or run_cost(layers, chosen) >= most:
            return chosen
        policy = Policy(options.optimize, model, ram_limited=True)
        return balance_shares(layers, chosen, policy, planner, budget.arena)
    chosen = _of_all(layers, model, options, planner.plan)
    if balanced:
        relieved = relieve_peak(layers, chosen, planner)
        return balance_shares(layers, relieved, Policy(options.optimize, model), planner)
    return chosen


def decide_with_nested(
    layers: Sequence[Ranking], model: Model, options: Options, plan: Planner, state: int
) -> list[Candidate]:
    """The same where layers run others: what is chosen does not depend on the RAM, but must fit it.

    Args:
        plan: the arena of a choice.
    """
    chosen = _of_all(layers, model, options, plan)
    if options.ram is not None:
        size = plan(*lowered_calls(layers, chosen)).size
        if size + state > options.ram:
            found = (
                f"the state takes {state}, the arena {size}; in models with loops or conditions no kernels "
                "are looked for that need less"
            )
            raise BudgetError.of_ram(options.ram, [found], size + state, "make their tensors smaller")
    return chosen


def _of_all(layers: Sequence[Ranking], model: Model, options: Options, plan: Planner) -> list[Candidate]:
    """The choice among all kernels, however much RAM there is."""
    if options.flash is not None:
        return _within(options.flash, layers, model)
    if options.optimize == "size":
        return select_least_flash(layers, plan)
    return [ranking.candidates[0] for ranking in layers]


def _of_fitting(model: Model, options: Options, fitting: Fitting) -> list[Candidate]:
    """The choice among the kernels whose calls fit the RAM."""
    layers = fitting.rankings(options.optimize)
    if options.flash is not None:
        return _within(options.flash, layers, model, fitting.candidates)
    if options.optimize == "size":
        return select_least_of_any_arena(layers)
    return [ranking.candidates[0] for ranking in layers]


def _of_free_layers(
    considered: Considered, free: Sequence[int], index: int, level: str
) -> Sequence[Candidate]:
    return considered(free[index], level)


def _within(
    flash: int, layers: Sequence[Ranking], model: Model, considered: Considered | None = None
) -> list[Candidate]:
    """The fastest kernels whose constants fit; what is fixed stays."""
    free = [index for index, ranking in enumerate(layers) if not ranking.fixed]
    fitting: Considered | None = None
    if considered is not None:
        fitting = partial(_of_free_layers, considered, free)
    choosable = [layers[index] for index in free]
    runs = [ranking.runs for ranking in choosable]
    found = select_within(flash, [r.layer for r in choosable], model, runs=runs, considered=fitting)
    if isinstance(found, int):
        limited = "" if considered is None else ", of those whose arena fits the RAM"
        why = f"the smallest kernels need {found} bytes of constants{limited}"
        raise BudgetError.of_flash(flash, [why], found)
    chosen = dict(zip(free, found, strict=True))
    return [chosen.get(index, ranking.candidates[0]) for index, ranking in enumerate(layers)]
