"""The kernels of a model whose layers compute whole tensors: the best choice, or the proof that none fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from microfold.errors import BudgetError
from microfold.kernels.cost.code_rows import around_calls
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.objective import Figures, Limits, Objective, objective_of
from microfold.kernels.selection.program import Choice
from microfold.kernels.selection.selector import Selection, Selector
from microfold.kernels.selection.variant import Variant, variants_of
from microfold.options import Options
from microfold.plan.schedule import SchedulePlanner
from microfold.support.frozen import frozen

# Why a variant is not taken that can compute a layer.
NOT_CHOSEN = "another choice for the whole model is better by the objective"


@frozen(eq=False)
class ChosenKernels:
    """The kernels of all layers.

    Attributes:
        own_copy: for each layer, whether its function is compiled for it alone.
        least: the least figures that any choice for this graph has: a hundred percent each.
        plans: for the order of calls in which the choice was made; None: layers run others.
        selector: found it, for this objective and these limits.
    """

    candidates: Sequence[Candidate]
    own_copy: Sequence[bool]
    figures: Figures
    proved: bool
    least: Figures
    plans: SchedulePlanner | None
    selector: Selector
    objective: Objective
    limits: Limits

    def write_model(self, path: Path) -> None:
        """Write the integer program of the choice, see `Selector.write_model`."""
        self.selector.write_model(path, self.objective, self.limits)


def choose_kernels(
    layers: Sequence[Ranking],
    model: Model,
    options: Options,
    plans: SchedulePlanner | None,
    state: int,
    reference: Figures | None = None,
) -> ChosenKernels:
    """Return the best kernels by the objective and the limits that the options ask for.

    Args:
        layers: each with at least one kernel.
        plans: in the graph's order; None: layers run others, and the arena has no part in the choice.
        state: bytes of RAM that the model keeps from run to run.
        reference: the figures that are a hundred percent; None: the least of this graph.

    Raises:
        BudgetError: no choice fits the flash or the RAM; it says how far that is proved.
    """
    variants = [variants_of(i, r, plans, model.costs, model.pins) for i, r in enumerate(layers)]
    fixed = _around_calls([ranking.layer for ranking in layers])
    given = Selector(variants, plans, reference, fixed)
    orders = [(plans, given)]
    if plans is not None:
        leanest = _leanest(variants)
        other = plans.reordered([v.kernel for v in leanest], [v.call for v in leanest])
        if other is not None:
            moved = _with_needs(variants, other)
            orders.append((other, Selector(moved, other, reference or given.least, fixed)))
    limits = Limits(
        flash=math.inf if options.flash is None else options.flash,
        arena=math.inf if options.ram is None or plans is None else options.ram - state,
    )
    objective = objective_of(options)
    found = [(selector.best(objective, limits), selector, order) for order, selector in orders]
    fitting = [(best, selector, order) for best, selector, order in found if best is not None]
    if not fitting:
        raise _refusal(layers, [selector for _, selector in orders], plans, options, state)
    best, selector, order = min(fitting, key=lambda each: each[0].values)
    return ChosenKernels(
        [_candidate(choice, ranking) for choice, ranking in zip(best.chosen, layers, strict=True)],
        [choice.own_copy for choice in best.chosen],
        best.figures,
        best.proved,
        selector.least,
        order,
        selector,
        objective,
        limits,
    )


def _leanest(layers: Sequence[Sequence[Variant]]) -> list[Variant]:
    """Return the variants whose calls need least of the arena, the fastest of equal ones."""
    return [min(variants, key=lambda v: (v.need, v.cycles)) for variants in layers]


def _around_calls(layers: Sequence[LayerContext]) -> int:
    """Return the bytes of code that call the functions of all layers."""
    if not layers:
        return 0
    small = layers[0].compiled_for_size
    return round(around_calls(layers[0].target.features, len(layers), small=small))


def _with_needs(layers: Sequence[Sequence[Variant]], plans: SchedulePlanner) -> list[list[Variant]]:
    """Return the variants with what their calls need in another order."""
    return [
        [replace(v, need=plans.need(index, v.kernel, v.call)) for v in variants]
        for index, variants in enumerate(layers)
    ]


def _candidate(choice: Choice, ranking: Ranking) -> Candidate:
    """Return the chosen variant with all that is known of its kernel's others."""
    kernel = choice.variant.kernel
    if ranking.fixed:
        return ranking.candidates[0]
    considered = next(c for c in ranking.candidates if c.kernel.name == kernel.name)
    return replace(considered, kernel=kernel, cost=choice.cycles / ranking.runs, reason=None)


def judged_by_objective(candidate: Candidate) -> Candidate:
    """Return a candidate whose variants were compared by the objective of the model, and by no rules."""
    if not candidate.offers:
        return candidate
    best = min(candidate.offers, key=lambda offer: offer.case.cost)
    chosen = candidate.cost is not None and any(o.case.kernel is candidate.kernel for o in candidate.offers)
    offers = [replace(offer, reason=NOT_CHOSEN, worth_it=True) for offer in candidate.offers]
    kernel, cost = (candidate.kernel, candidate.cost) if chosen else (best.case.kernel, best.case.cost)
    return replace(candidate, kernel=kernel, cost=cost, reason=None, offers=offers)


def _refusal(
    layers: Sequence[Ranking],
    selectors: Sequence[Selector],
    plans: SchedulePlanner | None,
    options: Options,
    state: int,
) -> BudgetError:
    """Return the least flash or RAM that would do, and how far that is proved."""
    if plans is not None and options.ram is not None:
        smallest = [_least_arena(selector) for selector in selectors]
        if min(each.figures.arena for each in smallest) > options.ram - state:
            return _refused_ram(layers, selectors[0].layers, smallest, plans, options.ram, state)
    assert options.flash is not None
    limits = Limits(arena=options.ram - state) if plans is not None and options.ram is not None else Limits()
    found = [selector.best(Objective(flash=1.0), limits) for selector in selectors]
    least = min(each.figures.flash for each in found if each is not None)
    limited = " of those that fit the RAM" if options.ram is not None else ""
    proof = (
        "which is proved" if all(each is not None and each.proved for each in found) else "as far as known"
    )
    return BudgetError(
        f"constants and code must fit {options.flash} bytes of flash",
        [f"the smallest kernels{limited} take {least} by estimate, {proof}"],
        [{"flash": least}],
    )


def _refused_ram(
    layers: Sequence[Ranking],
    variants: Sequence[Sequence[Variant]],
    smallest: Sequence[Selection],
    plans: SchedulePlanner,
    ram: int,
    state: int,
) -> BudgetError:
    """Return the least arena that exists, with the layer that decides."""
    least = min(each.figures.arena for each in smallest)
    fullest = max(_leanest(variants), key=lambda variant: variant.need)
    layer = layers[fullest.layer].layer
    any_order = max(
        min(plans.need_in_any_order(v.layer, v.kernel, v.call) for v in each) for each in variants
    )
    found = (
        f"the state takes {state}, layer {fullest.layer} ({layer.node.op.name}) "
        f"{layer.node.outputs[0].brief!r} alone needs {fullest.need} with the leanest kernel, "
        f"{fullest.kernel.name}, and the smallest arena found has {least}"
    )
    if any_order > ram - state:
        proof = f"no order of the layers and no kernels need less than {any_order}, which is proved"
    elif all(each.proved for each in smallest):
        proof = "in this order of the layers none is smaller, which is proved; of other orders it is not"
    else:
        proof = "that none is smaller is not proved"
    return BudgetError.of_ram(ram, [found, proof], least + state, "make this layer's tensors smaller")


def _least_arena(selector: Selector) -> Selection:
    found = selector.best(Objective(arena=1.0))
    assert found is not None  # without limits, there is always a choice
    return found
