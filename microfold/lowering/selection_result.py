"""Kernel selection and memory planning for one graph, and the memory estimator that passes use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from msgspec.structs import replace

from microfold.errors import BudgetError, InputError, Problem, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.candidates import (
    Candidate,
    Guidance,
    LayerCandidates,
    lowered_calls,
    no_kernel_reason,
)
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.kernels.selection.objective import Objective, SelectionFigures, objective_of
from microfold.kernels.selection.pins import NO_PINS, Pins
from microfold.lowering.choose import Chooser, ChosenKernels, limits_of
from microfold.lowering.scope import LoweringScope, ScopeMemory
from microfold.lowering.stream import best_streamed, best_tiled
from microfold.lowering.streamed import Streamed
from microfold.lowering.streamed_or_whole import WholeTensorPlan, smaller_rows, why_not_faster
from microfold.lowering.streaming_partitions import StreamingPartitions
from microfold.lowering.streaming_search import StreamingSearch
from microfold.options import Options
from microfold.passes.context import ArenaEstimate
from microfold.plan.schedule import Schedule, SchedulePlanner
from microfold.target import Target


class SelectionResult:
    """Result of kernel selection and memory planning for one graph; every part is computed on demand.

    Attributes:
        scope: scope of the graph, including the scopes of the graphs that it runs.

    Args:
        reference: figures that count as a hundred percent in the objective; None: the least figures of this
            graph.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        options: Options,
        costs: MeasuredCosts | None = None,
        pins: Pins = NO_PINS,
        reference: SelectionFigures | None = None,
    ):
        self.graph = graph
        self._costs, self._pins = costs, pins
        self._reference = reference
        self.options = options
        self.target = target
        self.scope = LoweringScope(graph, target, options, Guidance(costs, pins))

    def with_options(self, options: Options) -> SelectionResult:
        """Return the selection for the same graph with other options, and the same hundred percent."""
        return SelectionResult(self.graph, self.target, options, self._costs, self._pins, self.reference)

    @cached_property
    def rankings(self) -> list[LayerCandidates]:
        """All layers in the graph's order, with the kernels considered for them.

        Each layer is followed by the layers that it runs.
        """
        return [*self.scope.everything]

    @cached_property
    def problems(self) -> list[Problem]:
        """Layers that no kernel computes."""
        return [
            Problem(
                f"layer {index} ({layer.node.op.name}) {layer.node.outputs[0].short_name!r}",
                f"no kernel for {layer.target.name} supports it: {no_kernel_reason(layer, found)}",
                "choose another target or data type; `microfold kernels` lists the reasons for all kernels",
            )
            for index, (layer, found) in enumerate((r.layer, r.candidates) for r in self.rankings)
            if not found or found[0].cost is None
        ]

    def require_kernels(self) -> None:
        """Raise UnsupportedModelError if some layers have no kernel."""
        if self.problems:
            raise UnsupportedModelError(self.graph.name, self.problems)

    @cached_property
    def chosen(self) -> list[Candidate]:
        """Kernel of each layer.

        Raises:
            UnsupportedModelError: some layers have no kernel.
            InputError: no kernels fit the flash or the RAM that the options allow.
        """
        return [*self.exact.candidates]

    @cached_property
    def exact(self) -> ChosenKernels:
        """Best choice by the objective.

        Raises:
            UnsupportedModelError: some layers have no kernel.
            InputError: no kernels fit the flash or the RAM that the options allow.
        """
        options, state = self.options, self.scope.state_size
        limits = limits_of(options, state)
        if self.scope.inner:
            limits = replace(limits, arena=math.inf)
        found = self.chooser.best(objective_of(options), limits)
        if found is None:
            raise self.chooser.refusal(options, state)
        if self.scope.inner and options.ram is not None:
            self._check_nested(found, options.ram)
        return found

    @cached_property
    def chooser(self) -> Chooser:
        """Chooser among all kernels for whole tensors.

        Raises:
            UnsupportedModelError: some layers have no kernel.
        """
        self.require_kernels()
        plans = None if self.scope.inner else self.planner
        reference, ram = self._reference, self.scope.ram_besides_arena(io_in_arena=self.io_in_arena)
        return Chooser(self.rankings, plans, reference=reference, fixed_ram=ram)

    @cached_property
    def reference(self) -> SelectionFigures:
        """Figures that count as a hundred percent: the least time, flash and RAM of any choice of kernels.

        Raises:
            UnsupportedModelError: some layers have no kernel.
        """
        return self._reference or self.chooser.least

    def _check_nested(self, found: ChosenKernels, ram: int) -> None:
        """Raise BudgetError if the arena of layers that run others is too large."""
        size = self.memory([c.kernel for c in found.candidates], self.calls(found.candidates)).size
        state = self.scope.state_size
        if size + state > ram:
            why = (
                f"the state needs {state}, the arena {size}; in models with loops or conditions, kernels "
                "that need less are not searched for"
            )
            raise BudgetError.of_ram(ram, [why], size + state, "make their tensors smaller")

    def memory(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> ScopeMemory:
        """Return the addresses of tensors and scratch for calls in the graph's order."""
        return self.scope.memory(iter(kernels), iter(calls), include_io=self.io_in_arena)

    @cached_property
    def planner(self) -> SchedulePlanner:
        """Planner of the calls in the graph's order, if no call runs others."""
        layers = [ranking.layer for ranking in self.rankings]
        order = range(len(layers))
        return SchedulePlanner(self.graph, layers, order, self.io_in_arena, self.options.align)

    @property
    def io_in_arena(self) -> bool:
        return self.options.io == "arena"

    def calls(self, chosen: Sequence[Candidate]) -> list[KernelCall]:
        """Return the calls of chosen kernels."""
        return lowered_calls(self.rankings, chosen)[1]

    @cached_property
    def streamed(self) -> Streamed:
        """Model with some layers streamed; in tiles of columns if only these fit, or if they are fast.

        Raises:
            UnsupportedModelError: some layers have no kernel, or no layers can be streamed although they
                must.
            InputError: nothing fits the flash or the RAM that the options allow.
        """
        if isinstance(self.smaller_streamed, Streamed):
            return self.smaller_streamed
        found = self.rows
        return found if isinstance(found, Streamed) else best_tiled(self._search, found)

    @cached_property
    def rows(self) -> Streamed | list[InputError]:
        """Model with some layers streamed at full width or in faster tiles, or the reasons why nothing fits.

        Raises:
            UnsupportedModelError: some layers have no kernel.
        """
        self.require_kernels()
        return best_streamed(self._search)

    @cached_property
    def _search(self) -> StreamingSearch:
        return StreamingSearch(StreamingPartitions(self.scope, self.options), self.reference)

    @property
    def _no_choice(self) -> str:
        """Reason why there is no choice between streaming and whole tensors; empty if there is one."""
        if self.options.io == "rows":
            return "io=rows requires streaming"
        if self.scope.inner:
            return "a layer runs others (a loop or a condition)"
        if any(memory.prefetch for memory in self.target.memories):
            return "streamed layers cannot prefetch the constants of the target's memories"
        return self.options.streaming_blocker

    @cached_property
    def smaller_streamed(self) -> Streamed | str:
        """Streamed model that is preferred without limits, or the reason why whole tensors are preferred."""
        options = self.options
        if options.ram is not None or options.flash is not None:
            return "with a limit of RAM or flash, layers are streamed only if that is necessary or faster"
        if self._no_choice or self.problems:
            return self._no_choice or "some layers have no kernel"
        return smaller_rows(self._whole, self._search)

    @cached_property
    def why_not_faster_by_rows(self) -> str | None:
        """Reason why streaming is not better than whole tensors that fit the RAM; None if it is better.

        It is better if whole tensors fit only with slower kernels.
        """
        if self.options.ram is None:
            return "RAM has no limit"
        return self._no_choice or why_not_faster(self._whole, self._search, lambda: self.rows)

    @property
    def _whole(self) -> WholeTensorPlan:
        """Selection of kernels for whole tensors."""
        memory, order = self.schedule.memory, self.schedule.order
        needs = dict(zip(order, memory.needs, strict=True))
        layers = [needs[index] for index in range(len(order))]
        return WholeTensorPlan(
            self.rankings, self.chosen, layers, replace(self.exact.figures, arena=memory.size)
        )

    @cached_property
    def schedule(self) -> Schedule:
        """Addresses of all tensors with the chosen kernels, if no call runs others."""
        plans = self.exact.plans
        assert isinstance(plans, SchedulePlanner)
        return plans.planned(*lowered_calls(self.rankings, self.chosen))


class MemoryEstimator:
    """Memory estimator for `PassContext.arenas`; the graph that remains in the end is not planned again.

    Args:
        may_stream: whether layers may be streamed if nothing else fits.
    """

    def __init__(self, target: Target, options: Options, may_stream: bool = True):
        self.target, self.options = target, options
        self.may_stream = may_stream and not options.streaming_blocker
        self.limited = options.ram is not None
        self._selected: list[SelectionResult] = []

    @property
    def reference(self) -> SelectionFigures | None:
        """Least figures of the first graph, to which prices refer; None if it has no kernels."""
        if not self._selected or self._selected[0].problems:
            return None
        return self._selected[0].reference

    def selected(self, graph: Graph) -> SelectionResult:
        """Return the cached selection result for a graph."""
        for there in self._selected:
            if there.graph is graph:
                return there
        found = SelectionResult(graph, self.target, self.options, reference=self.reference)
        self._selected.append(found)
        return found

    def __call__(self, graph: Graph) -> ArenaEstimate | None:
        selected = self.selected(graph)
        if selected.scope.inner or selected.problems:
            return None
        try:
            found = selected.schedule
        except InputError:
            return self._by_rows(selected)
        if self.may_stream and selected.why_not_faster_by_rows is None:
            return self._by_rows(selected)
        needs = found.memory.needs
        fullest = [position for position, need in enumerate(needs) if need == max(needs)]
        alive = {
            value
            for value, storage in found.memory.owners.items()
            if any(storage.first <= position <= storage.last for position in fullest)
        }
        figures = selected.exact.figures
        return ArenaEstimate(found.memory.size, figures.cycles, figures.flash, frozenset(alive))

    def _by_rows(self, selected: SelectionResult) -> ArenaEstimate | None:
        if not self.may_stream:
            return None
        found = selected.rows
        if not isinstance(found, Streamed):
            return None
        figures = found.figures
        return ArenaEstimate(figures.arena, figures.cycles, figures.flash, frozenset(), streamed=True)

    def why_not(self, before: ArenaEstimate | None, after: ArenaEstimate | None) -> str | None:
        if after is None or after.streamed:
            return (
                "nothing fits the limits"
                if before is None or before.streamed
                else "some layers have no kernel"
            )
        if before is None:
            return None
        assert self.reference is not None  # a graph has been planned
        return worse(objective_of(self.options), self.reference, before, after)


def worse(
    objective: Objective, reference: SelectionFigures, before: ArenaEstimate, after: ArenaEstimate
) -> str | None:
    """Return why a graph is no better than the previous one by the objective; None if it is better."""
    now, then = (
        objective.value(SelectionFigures(each.cycles, each.flash, each.arena), reference)
        for each in (before, after)
    )
    if then < now:
        return None
    return (
        f"by the objective, {after.cycles:.0f} cycles, {after.flash} bytes of flash and {after.arena} of "
        f"arena are no better than {before.cycles:.0f}, {before.flash} and {before.arena}"
    )
