"""Choice of the kernels of a model, or of a streaming partition of it, or the proof that none fits."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import BudgetError, InputError
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.code_rows import around_calls
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import Candidate, LayerCandidates
from microfold.kernels.selection.objective import Limits, Objective, SelectionFigures
from microfold.kernels.selection.program import VariantChoice
from microfold.kernels.selection.selector import ArenaPlans, RunBounds, Selection, Selector
from microfold.kernels.selection.variant import Variant, variants_of
from microfold.options import Options
from microfold.support.memo import Remembered

# Reason for a variant that would make the model hardly worse, or that another one dominates.
NOT_CHOSEN = "another choice for the whole model is as good or better by the objective"
# Smaller relative differences of the objective are not reported; percentages have one digit.
SHOWN_PART = 0.0005


class Plans(ArenaPlans, Protocol):
    """Planner of the arena for the calls in one order, or in a better one."""

    def need_in_any_order(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Return the bytes that a layer's call needs in any order."""
        ...

    def reordered(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> OrderedPlans | None:
        """Return the plans for an order that suits these kernels better; None if none is found."""
        ...


class OrderedPlans(Plans, Protocol):
    """Planner of the arena for the calls in another order than the graph's.

    Attributes:
        order: order of the calls, as indices of layers.
    """

    @property
    def order(self) -> Sequence[int]: ...


class ChosenKernels(Struct, frozen=True, eq=False):
    """Kernels of all layers.

    Attributes:
        own_copy: for each layer, whether its function is compiled for it alone.
        plans: planner for the order of calls in which the choice was made; None if layers run others.
        elsewhere: functions that other models of the same build call.
        selector: selector that found the choice, for this objective and these limits.
    """

    candidates: Sequence[Candidate]
    own_copy: Sequence[bool]
    figures: SelectionFigures
    proved: bool
    plans: Plans | None
    selector: Selector
    objective: Objective
    limits: Limits
    elsewhere: Collection[CFunction] = ()

    def with_choices(
        self,
        layers: Sequence[LayerCandidates],
        choices: Sequence[VariantChoice],
        elsewhere: Collection[CFunction],
    ) -> ChosenKernels:
        """Return other variants of the same layers, for the same order of calls.

        Args:
            layers: layers with all kernels considered for them.
            choices: choice for each layer.
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
    """Chooser of the kernels of some layers, by the time and memory of all their variants.

    Args:
        layers: layers, each with at least one kernel.
        plans: planner of the arena; None if layers run others: the arena then does not influence the choice.
        reference: figures that count as a hundred percent; None: the least figures of these layers.
        fixed_flash, fixed_ram: see `Selector`.

    Raises:
        InputError: no kernel can compute one of the layers.
    """

    def __init__(
        self,
        layers: Sequence[LayerCandidates],
        plans: Plans | None,
        *,
        reference: SelectionFigures | None = None,
        fixed_flash: int = 0,
        fixed_ram: int = 0,
    ):
        self.layers, self._plans = layers, plans
        variants = [variants_of(index, ranking, plans) for index, ranking in enumerate(layers)]
        for ranking, found in zip(layers, variants, strict=True):
            if not found:
                raise InputError(f"no kernel can compute rows of %{ranking.layer.node.outputs[0].short_name}")
        fixed_flash += _around_calls([ranking.layer for ranking in layers])
        self._fixed = fixed_flash, fixed_ram
        self._given = Selector(variants, plans, reference, *self._fixed)
        self._remembered, self._unlimited = Remembered(), Remembered()

    @property
    def least(self) -> SelectionFigures:
        """Least figures of any choice for these layers, each minimised separately."""
        return self._given.least

    def best(
        self,
        objective: Objective,
        limits: Limits | None = None,
        better_than: SelectionFigures | None = None,
        *,
        thorough: bool = True,
        unique: bool = True,
    ) -> ChosenKernels | None:
        """Return the best kernels that keep the limits, see `Selector.best`; None if there are none.

        The calls are in the given order, or in the order that best suits the kernels chosen for it. With a
        limit of the arena, the order that best suits the kernels without the limit is also tried.
        """
        limits = limits or Limits()

        def choose(selector: Selector) -> Selection | None:
            return selector.best(objective, limits, better_than, thorough=thorough, unique=unique)

        selector, plans = self._given, self._plans
        best = choose(selector)
        for other in self._orders(best, objective, limits, unique=unique):
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

    @cached_property
    def smallest(self) -> ChosenKernels:
        """Kernels with the smallest arena."""
        found = self.best(Objective(arena=1.0))
        assert found is not None  # without limits, there is always a choice
        return found

    def bound(self, objective: Objective, limits: Limits | None = None) -> SelectionFigures | None:
        """Return figures that no kernels beat in this order of the calls; None if none keep the limits."""
        return self._given.bound(objective, limits)

    def _orders(
        self, best: Selection | None, objective: Objective, limits: Limits, *, unique: bool
    ) -> Sequence[OrderedPlans]:
        """Return the plans for other orders of the calls."""
        found = [self._reordered(best)]
        # Streaming partitions have neither bounds of runs nor another order.
        if math.isfinite(limits.arena) and isinstance(self._plans, RunBounds):
            free = replace(limits, arena=math.inf)
            unlimited = self._unlimited(
                (objective, free, unique), lambda: self._given.best(objective, free, unique=unique)
            )
            found.append(self._reordered(unlimited))
        return [*{(*plans.order,): plans for plans in found if plans is not None}.values()]

    def _reordered(self, best: Selection | None) -> OrderedPlans | None:
        """Return plans for an order that suits a choice (default: the kernels of least memory) better."""
        if self._plans is None:
            return None
        chosen = (
            [c.variant for c in best.chosen]
            if best is not None
            else _variants_of_least_memory(self._given.layers)
        )
        return self._plans.reordered([v.kernel for v in chosen], [v.call for v in chosen])

    def _selector_in(self, plans: Plans) -> Selector:
        """Return the selector for another order of the calls."""
        return Selector(_with_needs(self._given.layers, plans), plans, self._given.reference, *self._fixed)

    def refusal(self, options: Options, state: int) -> BudgetError:
        """Return the error with the least flash or RAM that would be enough, and whether this is proved.

        Args:
            state: bytes of RAM that the model keeps between runs.
        """
        ram = options.ram
        if self._plans is not None and ram is not None and self.smallest.figures.arena > ram - state:
            return self._refused_ram(self.smallest, ram, state)
        refusal = self.refused_flash(options, state)
        assert refusal is not None  # that much RAM is enough
        return refusal

    def refused_flash(self, options: Options, state: int) -> BudgetError | None:
        """Return the error with the least flash within the RAM; None if no kernels fit the RAM."""
        assert options.flash is not None
        within_ram = replace(limits_of(options, state), flash=math.inf)
        least = self.best(Objective(flash=1.0), within_ram if self._plans is not None else None)
        if least is None:
            return None
        limited = " that fit the RAM" if options.ram is not None else ""
        proof = "which is proved" if least.proved else "which is not proved"
        return BudgetError.of_flash(
            options.flash,
            [f"the smallest kernels{limited} need {least.figures.flash} by estimate, {proof}"],
            least.figures.flash,
        )

    def _refused_ram(self, smallest: ChosenKernels, ram: int, state: int) -> BudgetError:
        """Return the error with the smallest arena, and the layer that limits it."""
        plans = self._plans
        assert plans is not None
        fullest = max(_variants_of_least_memory(self._given.layers), key=lambda variant: variant.need)
        layer = self.layers[fullest.layer].layer
        short = layer.node.outputs[0].short_name
        any_order = max(
            min(plans.need_in_any_order(v.layer, v.kernel, v.call) for v in each)
            for each in self._given.layers
        )
        found = (
            f"the state needs {state}, layer {fullest.layer} ({layer.node.op.name}) "
            f"{short!r} alone needs {fullest.need} with the kernel of least memory, "
            f"{fullest.kernel.name}, and the smallest arena found needs {smallest.figures.arena}"
        )
        if any_order > ram - state:
            proof = f"no order of the layers and no kernels need less than {any_order}, which is proved"
        elif smallest.proved:
            proof = "in this order of the layers no arena is smaller, which is proved; in others it is not"
        else:
            proof = "it is not proved that no arena is smaller"
        least = smallest.figures.arena + state
        return BudgetError.of_ram(ram, [found, proof], least, "make this layer's tensors smaller")


def limits_of(options: Options, state: int) -> Limits:
    """Return the limits of flash and arena that the options set.

    Args:
        state: bytes of RAM that the model keeps between runs.
    """
    flash = math.inf if options.flash is None else options.flash
    return Limits(flash, math.inf if options.ram is None else options.ram - state)


def _variants_of_least_memory(layers: Sequence[Sequence[Variant]]) -> list[Variant]:
    """Return the variants whose calls need least of the arena, and the fastest of equal ones."""
    return [min(variants, key=lambda v: (v.need, v.cycles)) for variants in layers]


def _around_calls(layers: Sequence[LayerContext]) -> int:
    """Return the size of the code that calls the functions of all layers, in bytes."""
    if not layers:
        return 0
    small = layers[0].compiled_for_size
    return round(around_calls(layers[0].target.features, len(layers), small=small))


def _with_needs(layers: Sequence[Sequence[Variant]], plans: Plans) -> list[list[Variant]]:
    """Return the variants with the memory that their calls need in another order."""
    return [
        [replace(v, need=plans.need(index, v.kernel, v.call)) for v in variants]
        for index, variants in enumerate(layers)
    ]


def _candidate(choice: VariantChoice, ranking: LayerCandidates) -> Candidate:
    """Return the chosen variant as a candidate, with all other variants of its kernel."""
    kernel = choice.variant.kernel
    if ranking.fixed:
        return ranking.candidates[0]
    considered = next(c for c in ranking.candidates if c.kernel.name == kernel.name)
    return replace(considered, kernel=kernel, cost=choice.cycles / ranking.runs, reason=None)
