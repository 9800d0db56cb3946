"""The second stage of a build: the kernels of all layers, of whole tensors or of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from microfold.analysis.ranges import Ranges
from microfold.errors import BudgetError, InputError, UnsupportedModelError
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.selection.cheapest import Candidate, Ranking, run_cost
from microfold.kernels.selection.objective import Figures
from microfold.kernels.selection.program import Choice
from microfold.lowering.choose import ChosenKernels
from microfold.lowering.planned import Planned, plan_in_parts, planned_with
from microfold.lowering.refusals import combined
from microfold.lowering.scope import ScopeMemory
from microfold.lowering.stream_cuts import Cuts
from microfold.lowering.stream_search import Search
from microfold.lowering.streamed import Streamed, streamed
from microfold.plan.schedule import SchedulePlanner
from microfold.support.frozen import frozen

if TYPE_CHECKING:
    from microfold.lowering.optimised import Optimised

# Takes the chosen kernels, or others of the same layers.
Revise = Callable[[Sequence[Ranking], Sequence[Candidate]], Sequence[Candidate]]


@frozen(eq=False)
class WholeTensors:
    """Kernels for layers that compute whole tensors.

    Attributes:
        chosen: the kernel of each layer, in the graph's order.
        selection: the exact choice.
        revised: some kernels are others than those of the exact choice.
    """

    model: Optimised
    chosen: Sequence[Candidate]
    selection: ChosenKernels
    revised: bool = False

    @property
    def proved(self) -> bool:
        """Whether no choice of kernels for whole tensors is better, in this order of the calls."""
        return self.selection.proved and not self.revised

    @property
    def ranges(self) -> Ranges:
        """The proved ranges of the integers of the graph that is computed."""
        return self.model.selected.scope.ranges

    @cached_property
    def calls(self) -> list[KernelCall]:
        """The calls of the kernels, in the graph's order."""
        return self.model.selected.calls(self.chosen)

    @cached_property
    def planned(self) -> Planned:
        """The calls in their order, and where everything lies."""
        selected, kernels = self.model.selected, [candidate.kernel for candidate in self.chosen]
        if selected.scope.inner:
            memory = selected.memory(kernels, self.calls)
            return Planned(range(len(kernels)), selected.scope, memory)
        plans = self.selection.plans
        assert isinstance(plans, SchedulePlanner)
        found = (plans.schedule if self.revised else plans.planned)(kernels, self.calls)
        scope = selected.scope.in_order(found.graph, found.order)
        return Planned(found.order, scope, ScopeMemory(found.memory, {}, {}))

    @property
    def figures(self) -> Figures:
        """Time and memory of an inference, by estimates."""
        flash = self.selection.flash_of(self.chosen)
        cycles = run_cost(self.model.rankings, self.chosen)
        return Figures(cycles, flash, self.planned.memory.size)

    def with_choices(self, choices: Sequence[Choice], elsewhere: Collection[CFunction]) -> WholeTensors:
        """Return other variants of the same layers; see `ChosenKernels.with_choices`."""
        found = self.selection.with_choices(self.model.rankings, choices, elsewhere)
        return replace(self, chosen=found.candidates, selection=found)

    def with_fetched(self, fetched: Mapping[int, int]) -> Planned:
        """Return the plan with room for constants that are copied into the arena; see `plan_memory`.

        Raises:
            InputError: this takes more RAM than the options allow.
        """
        found = planned_with(fetched, self.planned, self.model, self.chosen, self.calls)
        self._check_ram(found.memory.size, "with room for the constants that are prefetched")
        return found

    @property
    def parts_fit(self) -> bool:
        """Whether the parts of the arena fit the RAM with all that fast memories can hold in these."""
        try:
            _, sizes = self._free_parts
        except InputError:
            return False
        ram = self.model.options.ram
        return ram is None or sum(sizes) + self.model.selected.scope.state_size <= ram

    @cached_property
    def _free_parts(self) -> tuple[Planned, tuple[int, ...]]:
        """The parts with any RAM."""
        return plan_in_parts(self.planned, self.model, self.chosen)

    def in_parts(self, planned: Planned) -> tuple[Planned, tuple[int, ...]]:
        """Return a plan with the arena in the memories of the target, and the bytes of its parts.

        Raises:
            InputError: the target has no memories for that, layers run others, or it takes more RAM than the
                options allow.
        """
        model = self.model
        if model.unlimited and planned is self.planned and self.parts_fit:
            return self._free_parts  # the limit would leave them as they are
        ram = model.options.ram
        allowed = None if ram is None else ram - model.selected.scope.state_size
        found = plan_in_parts(planned, model, self.chosen, allowed)
        self._check_ram(found[0].memory.size, "in parts")
        return found

    def _check_ram(self, arena: int, how: str) -> None:
        """Raises InputError if this arena is larger than the options allow."""
        limit = self.model.options.ram
        needed = arena + self.model.selected.scope.state_size
        if limit is not None and needed > limit:
            raise InputError(
                f"arena and state must fit {limit} bytes; {how}, they have {needed}: allow more, or give the "
                "target larger memories"
            )


@frozen(eq=False)
class Rows:
    """Kernels for a model that computes some of its layers row by row."""

    model: Optimised
    streamed: Streamed

    @property
    def chosen(self) -> Sequence[Candidate]:
        """The kernel of each layer of the cut."""
        return self.streamed.chosen

    @property
    def selection(self) -> ChosenKernels:
        """The exact choice."""
        return self.streamed.selection

    @property
    def ranges(self) -> Ranges:
        """The proved ranges of the integers of the graph that is computed."""
        return self.streamed.ranges

    @property
    def figures(self) -> Figures:
        """Time and memory of an inference, by estimates."""
        return self.streamed.figures

    def with_choices(self, choices: Sequence[Choice], elsewhere: Collection[CFunction]) -> Rows:
        """Return other variants of the same layers; see `ChosenKernels.with_choices`."""
        now = self.streamed
        found = now.selection.with_choices(now.rankings, choices, elsewhere)
        return replace(
            self, streamed=streamed(now.planner, now.rankings, found.candidates, found, now.ranges)
        )


def choose_kernels(model: Optimised, revise: Revise | None = None) -> WholeTensors | Rows:
    """Return the best kernels that keep the limits of the options.

    Args:
        revise: has the last word, whatever the limits are; None: the exact choice stays.

    Raises:
        UnsupportedModelError: some layers have no kernel.
        InputError: none of them fit the flash or the RAM that the options allow.
    """
    if computed_by_rows(model):
        found = model.selected.streamed
        if revise is not None:
            found = found.with_kernels(revise(found.rankings, found.chosen))
        return Rows(model, found)
    exact, chosen = model.selected.exact, model.selected.chosen
    if revise is None:
        return WholeTensors(model, chosen, exact)
    # The order of calls may be another one for other kernels.
    given = replace(exact, plans=exact.plans and model.selected.planner)
    return WholeTensors(model, revise(model.rankings, chosen), given, revised=True)


def computed_by_rows(model: Optimised) -> bool:
    """Return whether some layers are computed row by row: it is wanted, nothing else fits, or it is better.

    Raises:
        InputError: neither fits.
    """
    options, selected = model.options, model.selected
    if options.io == "rows":
        return True
    if selected.scope.inner or model.sliding is not None:
        return False
    if options.ram is None:
        smaller = model.estimated.smaller_by_rows is not None
        return _rows_are_chosen(model, "by rows" if smaller else "whole")
    try:
        _ = selected.exact
    except BudgetError as refusal:
        if options.why_whole:
            found = [*refusal.found, f"by rows, {options.why_whole}"]
            raise BudgetError(refusal.rule, found, refusal.remedies, refusal.otherwise) from None
        try:
            _ = selected.streamed
        except BudgetError as other:
            raise combined(refusal, other) from None
        except (InputError, UnsupportedModelError):
            raise refusal from None
        return True
    return _rows_are_chosen(model, "by rows" if model.estimated.faster_by_rows else "whole")


def _rows_are_chosen(model: Optimised, best: str) -> bool:
    """Return whether layers are computed by rows where whole tensors fit; `best`: what estimates say."""

    def estimates() -> Mapping[str, float]:
        found = {"whole": run_cost(model.rankings, model.selected.chosen)}
        if not model.options.why_whole:
            with suppress(InputError, UnsupportedModelError):
                found["by rows"] = model.selected.streamed.cost
        return found

    return model.context.choose("layers", best, estimates) == "by rows"


def least_by_rows(model: Optimised, io: str) -> int | None:
    """Return the bytes of RAM that layers by rows of full width need at least, of what is found.

    None: no layers can be computed so.

    Args:
        io: instead of that of the options.
    """
    scope = model.selected.scope
    if scope.inner or model.sliding is not None or model.options.why_whole:
        return None
    cuts = Cuts(scope, replace(model.options, io=io))
    search = Search(cuts, model.selected.reference)
    return int(search.leanest) + scope.state_size if cuts.promising else None
