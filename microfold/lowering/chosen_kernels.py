"""Second stage of a build: kernels of all layers, for whole tensors or for streaming."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.ranges import Ranges
from microfold.errors import BudgetError, InputError, UnsupportedModelError
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.selection.candidates import Candidate, LayerCandidates, run_cost
from microfold.kernels.selection.objective import SelectionFigures
from microfold.kernels.selection.program import VariantChoice
from microfold.lowering.budget_remedies import combined
from microfold.lowering.choose import ChosenKernels
from microfold.lowering.planned import PlannedCalls, plan_in_parts, planned_with
from microfold.lowering.scope import ScopeMemory
from microfold.lowering.streamed import Streamed, streamed
from microfold.lowering.streaming_partitions import StreamingPartitions
from microfold.lowering.streaming_search import StreamingSearch
from microfold.plan.schedule import SchedulePlanner

if TYPE_CHECKING:
    from microfold.lowering.optimised import OptimisedModel

# Selection override: receives the chosen kernels, and returns them or others for the same layers.
SelectionOverride = Callable[[Sequence[LayerCandidates], Sequence[Candidate]], Sequence[Candidate]]


class WholeTensors(Struct, frozen=True, eq=False, dict=True):
    """Kernels for layers that compute whole tensors.

    Attributes:
        chosen: kernel of each layer, in the graph's order.
        selection: exact choice.
        revised: whether some kernels differ from the exact choice.
    """

    model: OptimisedModel
    chosen: Sequence[Candidate]
    selection: ChosenKernels
    revised: bool = False

    @property
    def proved(self) -> bool:
        """Whether no choice of kernels for whole tensors is better, in this order of the calls."""
        return self.selection.proved and not self.revised

    @property
    def ranges(self) -> Ranges:
        """Proved ranges of the integers of the computed graph."""
        return self.model.selected.scope.ranges

    @cached_property
    def calls(self) -> list[KernelCall]:
        """Calls of the kernels, in the graph's order."""
        return self.model.selected.calls(self.chosen)

    @cached_property
    def planned(self) -> PlannedCalls:
        """Calls in their order, with the addresses of all tensors."""
        selected, kernels = self.model.selected, [candidate.kernel for candidate in self.chosen]
        if selected.scope.inner:
            memory = selected.memory(kernels, self.calls)
            return PlannedCalls(range(len(kernels)), selected.scope, memory)
        plans = self.selection.plans
        assert isinstance(plans, SchedulePlanner)
        found = (plans.schedule if self.revised else plans.planned)(kernels, self.calls)
        scope = selected.scope.in_order(found.graph, found.order)
        return PlannedCalls(found.order, scope, ScopeMemory(found.memory, {}, {}))

    @property
    def figures(self) -> SelectionFigures:
        """Estimated time and memory of an inference."""
        flash = self.selection.flash_of(self.chosen)
        cycles = run_cost(self.model.rankings, self.chosen)
        return SelectionFigures(cycles, flash, self.planned.memory.size)

    def with_choices(
        self, choices: Sequence[VariantChoice], elsewhere: Collection[CFunction]
    ) -> WholeTensors:
        """Return other variants of the same layers; see `ChosenKernels.with_choices`."""
        found = self.selection.with_choices(self.model.rankings, choices, elsewhere)
        return replace(self, chosen=found.candidates, selection=found)

    def with_fetched(self, fetched: Mapping[int, int]) -> PlannedCalls:
        """Return the plan with room for constants that are copied into the arena; see `plan_memory`.

        Raises:
            InputError: the plan needs more RAM than the options allow.
        """
        found = planned_with(fetched, self.planned, self.model, self.chosen, self.calls)
        self._check_ram(found.memory.size, "with room for prefetched constants")
        return found

    @property
    def parts_fit(self) -> bool:
        """Whether the parts of the arena fit the RAM if fast memories hold as much of them as possible."""
        try:
            _, sizes = self._free_parts
        except InputError:
            return False
        ram = self.model.options.ram
        return ram is None or sum(sizes) + self.model.selected.scope.state_size <= ram

    @cached_property
    def _free_parts(self) -> tuple[PlannedCalls, tuple[int, ...]]:
        """Parts of the arena without a limit of RAM."""
        return plan_in_parts(self.planned, self.model, self.chosen)

    def in_parts(self, planned: PlannedCalls) -> tuple[PlannedCalls, tuple[int, ...]]:
        """Return a plan with the arena in the memories of the target, and the bytes of its parts.

        Raises:
            InputError: the target has no memories for parts, layers run others, or the plan needs more RAM
                than the options allow.
        """
        model = self.model
        if model.unlimited and planned is self.planned and self.parts_fit:
            return self._free_parts  # the limit would not change them
        ram = model.options.ram
        allowed = None if ram is None else ram - model.selected.scope.state_size
        found = plan_in_parts(planned, model, self.chosen, allowed)
        self._check_ram(found[0].memory.size, "in parts")
        return found

    def _check_ram(self, arena: int, how: str) -> None:
        """Raise InputError if an arena is larger than the options allow."""
        limit = self.model.options.ram
        needed = arena + self.model.selected.scope.state_size
        if limit is not None and needed > limit:
            raise InputError(
                f"arena and state must fit {limit} bytes; {how}, they need {needed}: allow more, or give the "
                "target larger memories"
            )


class StreamedModel(Struct, frozen=True, eq=False):
    """Kernels for a model that streams some of its layers."""

    model: OptimisedModel
    streamed: Streamed

    @property
    def chosen(self) -> Sequence[Candidate]:
        """Kernel of each layer of the streaming partition."""
        return self.streamed.chosen

    @property
    def selection(self) -> ChosenKernels:
        """Exact choice."""
        return self.streamed.selection

    @property
    def ranges(self) -> Ranges:
        """Proved ranges of the integers of the computed graph."""
        return self.streamed.ranges

    @property
    def figures(self) -> SelectionFigures:
        """Estimated time and memory of an inference."""
        return self.streamed.figures

    def with_choices(
        self, choices: Sequence[VariantChoice], elsewhere: Collection[CFunction]
    ) -> StreamedModel:
        """Return other variants of the same layers; see `ChosenKernels.with_choices`."""
        now = self.streamed
        found = now.selection.with_choices(now.rankings, choices, elsewhere)
        return replace(
            self, streamed=streamed(now.planner, now.rankings, found.candidates, found, now.ranges)
        )


def choose_kernels(
    model: OptimisedModel, revise: SelectionOverride | None = None
) -> WholeTensors | StreamedModel:
    """Return the best kernels that keep the limits of the options.

    Args:
        revise: override of the exact choice, which may exceed the limits; None: the exact choice stays.

    Raises:
        UnsupportedModelError: some layers have no kernel.
        InputError: no kernels fit the flash or the RAM that the options allow.
    """
    if prefers_streaming(model):
        found = model.selected.streamed
        if revise is not None:
            found = found.with_kernels(revise(found.rankings, found.chosen))
        return StreamedModel(model, found)
    exact, chosen = model.selected.exact, model.selected.chosen
    if revise is None:
        return WholeTensors(model, chosen, exact)
    # The order of calls may change for other kernels.
    given = replace(exact, plans=exact.plans and model.selected.planner)
    return WholeTensors(model, revise(model.rankings, chosen), given, revised=True)


def prefers_streaming(model: OptimisedModel) -> bool:
    """Return whether to stream some layers: the options require it, nothing else fits, or it is better.

    Raises:
        InputError: neither streaming nor whole tensors fit.
    """
    return streaming_decision(model)[0]


def streaming_decision(model: OptimisedModel) -> tuple[bool, str]:
    """Return whether to stream some layers, and the reason.

    Raises:
        InputError: see `prefers_streaming`.
    """
    options, selected = model.options, model.selected
    if options.io == "rows":
        return True, "io=rows requires it"
    if selected.scope.inner:
        return False, "a layer runs others (a loop or a condition)"
    if model.sliding is not None:
        return False, "a run of a sliding window takes whole frames"
    if options.ram is None:
        found = model.estimated.smaller_streamed
        if isinstance(found, str):
            return _rows_or_whole(model, "whole", found)
        return _rows_or_whole(model, "by rows", "it is better by the objective, and no slower")
    try:
        _ = selected.exact
    except BudgetError as refusal:
        if options.streaming_blocker:
            found = [*refusal.found, f"by rows, {options.streaming_blocker}"]
            raise BudgetError(refusal.rule, found, refusal.remedies, refusal.otherwise) from None
        try:
            _ = selected.streamed
        except BudgetError as other:
            raise combined(refusal, other) from None
        except (InputError, UnsupportedModelError):
            raise refusal from None
        return True, "whole tensors do not fit the limits"
    reason = model.estimated.why_not_faster_by_rows
    if reason is None:
        return _rows_or_whole(model, "by rows", "whole tensors fit the RAM only with slower kernels")
    return _rows_or_whole(model, "whole", reason)


def _rows_or_whole(model: OptimisedModel, best: str, reason: str) -> tuple[bool, str]:
    """Return whether to stream layers if whole tensors fit, and the reason.

    Args:
        best: preference by estimates.
        reason: reason for the preference.
    """

    def estimates() -> Mapping[str, float]:
        found = {"whole": run_cost(model.rankings, model.selected.chosen)}
        if not model.options.streaming_blocker:
            with suppress(InputError, UnsupportedModelError):
                found["by rows"] = model.selected.streamed.cost
        return found

    taken = model.context.choose("layers", best, estimates)
    return taken == "by rows", reason if taken == best else "measured runs of `microfold tune` decided it"


def least_streamed_ram(model: OptimisedModel, io: str) -> int | None:
    """Return the least RAM, in bytes, of the full-width streaming partitions that are found.

    None if no layers can be streamed.

    Args:
        io: replacement for the option `io`.
    """
    scope = model.selected.scope
    if scope.inner or model.sliding is not None or model.options.streaming_blocker:
        return None
    cuts = StreamingPartitions(scope, replace(model.options, io=io))
    search = StreamingSearch(cuts, model.selected.reference)
    return int(search.with_least_memory) + scope.state_size if cuts.shortlist else None
