"""The kernels of a model, or of a cut by rows of it: the best choice, or the proof that none fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from microfold.errors import BudgetError, InputError
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.code_rows import around_calls
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.objective import Figures, Limits, Objective
from microfold.kernels.selection.program import Choice
from microfold.kernels.selection.selector import ArenaPlans, RunBounds, Selection, Selector
from microfold.kernels.selection.variant import Variant, variants_of
from microfold.options import Options
from microfold.support.frozen import frozen
from microfold.support.memo import Remembered

# Why a variant is not taken that costs the model hardly more, or that another one can replace at no cost.
NOT_CHOSEN = "another choice for the whole model is as good or better by the objective"
# Smaller parts of the objective are not stated: they are shown with one digit of a percent.
SHOWN_PART = 0.0005


class Plans(ArenaPlans, Protocol):
    """Plans the arena for the calls in one order, or in a better one."""

    def need_in_any_order(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Return bytes that a layer's call needs whatever the order."""
        ...

    def reordered(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> OrderedPlans | None:
        """Return the plans for the order that suits these kernels better; None: none was found."""
        ...


class OrderedPlans(Plans, Protocol):
    """Plans the arena for the calls in another order than that of the graph.

    Attributes:
        order: of the calls, as indices of layers.
    """

    @property
    def order(self) -> Sequence[int]: ...


@frozen(eq=False)
class ChosenKernels:
    """The kernels of all layers.

    Attributes:
        own_copy: for each layer, whether its function is compiled for it alone.
        plans: for the order of calls in which the choice was made; None: layers run others.
        elsewhere: functions that other models of the same build call.
        selector: found it, for this objective and these limits.
    """

    candidates: Sequence[Candidate]
    own_copy: Sequence[bool]
    figures: Figures
    proved: bool
    plans: Plans | None
    selector: Selector
    objective: Objective
    limits: Limits
    elsewhere: Collection[CFunction] = ()

    def with_choices(
        self, layers: Sequence[Ranking], choices: Sequence[Choice], elsewhere: Collection[CFunction]
    ) -> ChosenKernels:
        """Return other variants of the same layers, for the same order of calls.

        Args:
            layers: with all that is considered for them.
            choices: for each layer.
            elsewhere: see `ChosenKernels`.
        """
        candidates = [_candidate(choice, ranking) for choice, ranking in zip(choices, layers, strict=True)]
        return replace(
            self,
            candidates=candidates,
            own_copy=[choice.own_copy for choice in choices],
            figures=self.selector.figures(choices),
            elsewhere=elsewhere,
        )

    def write_model(self, path: Path) -> None:
        """Write the integer program of the choice, see `Selector.write_model`."""
        self.selector.write_model(path, self.objective, self.limits)

    def flash_of(self, candidates: Sequence[Candidate]) -> int:
        """Return the bytes of flash with other variants of the same layers."""
        return self.selector.flash_of([candidate.kernel for candidate in candidates], self.own_copy)

    def why_not(self) -> list[Mapping[Kernel, str]]:
        """Return for the variants of each layer why they are not chosen."""
        costs = self.selector.reduced_costs(self.objective, self.limits)
        return [{kernel: _why_not(part) for kernel, part in each.items()} for each in costs]


def _why_not(part: float) -> str:
    if part < SHOWN_PART:
        return NOT_CHOSEN
    return f"by the objective, the model would cost at least {part:.1%} more"


class Chooser:
    """Chooses the kernels of some layers, by all that their variants take.

    Args:
        layers: each with at least one kernel.
        plans: of the arena; None: layers run others, and the arena has no part in the choice.
        reference: the figures that are a hundred percent; None: the least of these layers.
        fixed_flash, fixed_ram: see `Selector`.
        may_compute: whether a kernel that can compute a layer, by its index, may; default: all may.

    Raises:
        InputError: no kernel may compute one of the layers.
    """

    def __init__(
        self,
        layers: Sequence[Ranking],
        plans: Plans | None,
        *,
        reference: Figures | None = None,
        fixed_flash: int = 0,
        fixed_ram: int = 0,
        may_compute: Callable[[int, Kernel], bool] | None = None,
    ):
        self.layers, self._plans = layers, plans
        variants = [variants_of(index, ranking, plans) for index, ranking in enumerate(layers)]
        if may_compute is not None:
            variants = [[v for v in each if may_compute(v.layer, v.kernel)] for each in variants]
        for ranking, found in zip(layers, variants, strict=True):
            if not found:
                raise InputError(f"no kernel can compute rows of %{ranking.layer.node.outputs[0].brief}")
        fixed_flash += _around_calls([ranking.layer for ranking in layers])
        self._fixed = fixed_flash, fixed_ram
        self._given = Selector(variants, plans, reference, *self._fixed)
        self._remembered = Remembered()

    @property
    def least(self) -> Figures:
        """The least figures that any choice for these layers has, each by itself."""
        return self._given.least

    def best(
        self,
        objective: Objective,
        limits: Limits | None = None,
        better_than: Figures | None = None,
        *,
        thorough: bool = True,
        unique: bool = True,
    ) -> ChosenKernels | None:
        """Return the best kernels that keep the limits; None: none do; see `Selector.best`.

        The calls are in the given order, or in the one that suits the kernels best which are chosen there;
        with a limit of the arena, also in the one that suits those best that are chosen without it.
        """
        limits = limits or Limits()

        def choose(selector: Selector) -> Selection | None:
            return selector.best(objective, limits, better_than, thorough=thorough, unique=unique)

        selector, plans = self._given, self._plans
        best = choose(selector)
        for other in self._orders(best, objective, limits):
            again = self._remembered((*other.order,), lambda other=other: self._selector_in(other))
            moved = choose(again)
            if moved is not None and (best is None or moved.values < best.values):
                best, selector, plans = moved, again, other
        if best is None:
            return None
        return ChosenKernels(
            [_candidate(choice, ranking) for choice, ranking in zip(best.chosen, self.layers, strict=True)],
            [choice.own_copy for choice in best.chosen],
            best.figures,
            best.proved,
            plans,
            selector,
            objective,
            limits,
        )

    def bound(self, objective: Objective, limits: Limits | None = None) -> Figures | None:
        """Return figures that no kernels can beat in this order of the calls; None: none keep the limits."""
        return self._given.bound(objective, limits)

    def _orders(self, best: Selection | None, objective: Objective, limits: Limits) -> Sequence[OrderedPlans]:
        """Return the plans for other orders of the calls."""
        found = [self._reordered(best)]
        # Cuts by rows have no such bounds, nor another order.
        if math.isfinite(limits.arena) and isinstance(self._plans, RunBounds):
            found.append(self._reordered(self._given.best(objective, replace(limits, arena=math.inf))))
        return [*{(*plans.order,): plans for plans in found if plans is not None}.values()]

    def _reordered(self, best: Selection | None) -> OrderedPlans | None:
        """Return the plans for the order that suits a choice better; without one, the leanest kernels."""
        if self._plans is None:
            return None
        chosen = [c.variant for c in best.chosen] if best is not None else _leanest(self._given.layers)
        return self._plans.reordered([v.kernel for v in chosen], [v.call for v in chosen])

    def _selector_in(self, plans: Plans) -> Selector:
        """Return the selector for another order of the calls."""
        return Selector(_with_needs(self._given.layers, plans), plans, self._given.reference, *self._fixed)

    def refusal(self, options: Options, state: int) -> BudgetError:
        """Return the least flash or RAM that would do, and how far that is proved.

        Args:
            state: bytes of RAM that the model keeps from run to run.
        """
        if self._plans is not None and options.ram is not None:
            smallest = self.best(Objective(arena=1.0))
            assert smallest is not None  # without limits, there is always a choice
            if smallest.figures.arena > options.ram - state:
                return self._refused_ram(smallest, options.ram, state)
        refusal = self.refused_flash(options, state)
        assert refusal is not None  # that much RAM is enough
        return refusal

    def refused_flash(self, options: Options, state: int) -> BudgetError | None:
        """Return the least flash within the RAM, see `refusal`; None: no kernels fit the RAM."""
        assert options.flash is not None
        within_ram = replace(limits_of(options, state), flash=math.inf)
        least = self.best(Objective(flash=1.0), within_ram if self._plans is not None else None)
        if least is None:
            return None
        limited = " of those that fit the RAM" if options.ram is not None else ""
        proof = "which is proved" if least.proved else "as far as known"
        return BudgetError.of_flash(
            options.flash,
            [f"the smallest kernels{limited} take {least.figures.flash} by estimate, {proof}"],
            least.figures.flash,
        )

    def _refused_ram(self, smallest: ChosenKernels, ram: int, state: int) -> BudgetError:
        """Return the least arena that exists, with the layer that decides."""
        plans = self._plans
        assert plans is not None
        fullest = max(_leanest(self._given.layers), key=lambda variant: variant.need)
        layer = self.layers[fullest.layer].layer
        any_order = max(
            min(plans.need_in_any_order(v.layer, v.kernel, v.call) for v in each)
            for each in self._given.layers
        )
        found = (
            f"the state takes {state}, layer {fullest.layer} ({layer.node.op.name}) "
            f"{layer.node.outputs[0].brief!r} alone needs {fullest.need} with the leanest kernel, "
            f"{fullest.kernel.name}, and the smallest arena found has {smallest.figures.arena}"
        )
        if any_order > ram - state:
            proof = f"no order of the layers and no kernels need less than {any_order}, which is proved"
        elif smallest.proved:
            proof = "in this order of the layers none is smaller, which is proved; of other orders it is not"
        else:
            proof = "that none is smaller is not proved"
        least = smallest.figures.arena + state
        return BudgetError.of_ram(ram, [found, proof], least, "make this layer's tensors smaller")


def limits_of(options: Options, state: int) -> Limits:
    """Return the limits that options give the flash and the arena.

    Args:
        state: bytes of RAM that the model keeps from run to run.
    """
    flash = math.inf if options.flash is None else options.flash
    return Limits(flash, math.inf if options.ram is None else options.ram - state)


def _leanest(layers: Sequence[Sequence[Variant]]) -> list[Variant]:
    """Return the variants whose calls need least of the arena, the fastest of equal ones."""
    return [min(variants, key=lambda v: (v.need, v.cycles)) for variants in layers]


def _around_calls(layers: Sequence[LayerContext]) -> int:
    """Return the bytes of code that call the functions of all layers."""
    if not layers:
        return 0
    small = layers[0].compiled_for_size
    return round(around_calls(layers[0].target.features, len(layers), small=small))


def _with_needs(layers: Sequence[Sequence[Variant]], plans: Plans) -> list[list[Variant]]:
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
