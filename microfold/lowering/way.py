"""From an imported graph to the kernels that compute it: passes, choices, and what needs which RAM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from microfold.analysis.ranges import Ranges
from microfold.errors import BudgetError, InputError, UnsupportedModelError
from microfold.external.registry import resolve
from microfold.ir.domain import admit
from microfold.ir.graph import Graph
from microfold.kernels.call import KernelCall
from microfold.kernels.selection.cheapest import Candidate, Ranking, run_cost
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.kernels.selection.node_cost import NodeCosts
from microfold.kernels.selection.objective import Figures, objective_of
from microfold.kernels.selection.pins import NO_PINS, resolve_pins
from microfold.lowering.arenas import PlannedArenas, Selected
from microfold.lowering.pinnable import pinnable_layers
from microfold.lowering.refusals import combined
from microfold.lowering.scope import Scope, ScopeMemory
from microfold.lowering.stream_cuts import Cuts
from microfold.lowering.stream_search import Search
from microfold.lowering.streamed import Streamed
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.passes.kinds import Pass
from microfold.pipeline import chosen_pipeline, default_pipeline, slide
from microfold.plan.memory import plan_memory
from microfold.plan.parts import check_parts, plan_parts
from microfold.support.frozen import frozen
from microfold.target import Target
from microfold.transform.layout.io_layout import with_io_layout
from microfold.transform.requested.slide_window import Sliding
from microfold.transform.subgraphs.limit_loops import with_limited_loops

# What selection has chosen for all layers, or something else.
Revise = Callable[[Sequence[Ranking], Sequence[Candidate]], Sequence[Candidate]]


class Way:
    """The way of a model to the kernels that compute it.

    Attributes:
        source: the model as the caller sees it: the reference.
        graph: the optimised one; `planned` may have its nodes in another order.
        sliding: what `source` was made of, if only new frames are handed in.
        context: what the passes were told.
        decisions: what they decided.
        scope: of `graph`, with those of the graphs that it runs.
        unlimited: passes and kernels are chosen as without a limit of RAM.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        options: Options,
        context: PassContext,
        unroll: int,
        passes: Pass | None = None,
        costs: MeasuredCosts | None = None,
        revise: Revise | None = None,
        unlimited: bool = False,
    ):
        if context.numerics != options.numerics:
            raise InputError(
                "options and context must ask for the same numerics; "
                f"they ask for {options.numerics} and {context.numerics}"
            )
        admit(graph)
        self.target = target
        self.options = options
        self.unlimited = unlimited
        self.revise = revise
        node_costs = NodeCosts(target, objective_of(options), compiled_for_size=options.optimize == "size")
        self.context = replace(
            context,
            unroll=unroll,
            channel_block=target.channel_block,
            spare_flash=context.spare_flash or options.optimize == "size",
            node_cost=node_costs,
            node_scratch=node_costs.scratch,
            half_precision=target.half_precision,
            externals=resolve(options.external),
        )
        self.decisions: list[Decision] = []
        limited = with_limited_loops(graph, options.max_iterations, self.context)
        self.source = with_io_layout(limited, options.io_layout, self.context)
        self.sliding: Sliding | None = None
        if options.sliding is not None:
            self.source, self.sliding = slide(
                self.source, options.sliding, options.sliding_step, self.context
            )
        pipeline = default_pipeline() if passes is None else chosen_pipeline(passes)
        chosen_for = replace(options, ram=None) if unlimited else options
        # Kernels are chosen by what was measured of them; what is asked about whole programs, by estimates:
        # measured runs of these answer it, see `Choices`.
        estimates = PlannedArenas(target, chosen_for, may_stream=self.sliding is None)
        told = replace(self.context, arenas=estimates if options.io != "rows" else None)
        self.graph = pipeline(self.source, told.reporting_to(self.decisions.append))
        self._estimated = estimates.selected(self.graph)
        pins = NO_PINS
        if options.kernels:
            pins = resolve_pins(options.kernels, pinnable_layers(self._estimated))
            self._estimated = Selected(
                self.graph, target, chosen_for, pins=pins, reference=estimates.reference
            )
        self.selected = self._estimated
        if costs is not None:
            # A hundred percent of the time are measured, too.
            self.selected = Selected(self.graph, target, chosen_for, costs, pins)
        self.scope = self.selected.scope

    @property
    def rankings(self) -> list[Ranking]:
        """All layers, in the graph's order, with the kernels considered for them.

        Each is followed by those that it runs.
        """
        return self.selected.rankings

    @cached_property
    def chosen(self) -> Sequence[Candidate]:
        """The kernel of each layer.

        Raises:
            UnsupportedModelError: some layers have none.
            InputError: none of them fit the flash or the RAM that the options allow.
        """
        chosen = self.selected.chosen
        return chosen if self.revise is None else self.revise(self.rankings, chosen)

    @property
    def kernels_proved(self) -> bool:
        """Whether no choice of kernels for whole tensors is better, in this order of the calls."""
        return self.revise is None and self.selected.exact.proved

    @cached_property
    def streamed(self) -> Streamed:
        """The model with some layers computed row by row; see `Selected.streamed`."""
        found = self.selected.streamed
        return found if self.revise is None else found.with_kernels(self.revise(found.rankings, found.chosen))

    @property
    def ranges(self) -> Ranges:
        """What is proved about the integers of the graph that is computed."""
        return self.streamed.ranges if self.by_rows else self.scope.ranges

    @cached_property
    def by_rows(self) -> bool:
        """Whether some layers are computed row by row: it is wanted, nothing else fits, or it is better.

        Raises:
            InputError: neither fits.
        """
        options = self.options
        if options.io == "rows":
            return True
        if self.scope.inner or self.sliding is not None:
            return False
        if options.ram is None:
            smaller = self._estimated.smaller_by_rows is not None
            return self._rows_are_chosen("by rows" if smaller else "whole")
        try:
            _ = self.selected.chosen
        except BudgetError as refusal:
            if options.why_whole:
                found = [*refusal.found, f"by rows, {options.why_whole}"]
                raise BudgetError(refusal.rule, found, refusal.remedies, refusal.otherwise) from None
            try:
                _ = self.selected.streamed
            except BudgetError as other:
                raise combined(refusal, other) from None
            except (InputError, UnsupportedModelError):
                raise refusal from None
            return True
        return self._rows_are_chosen("by rows" if self._estimated.faster_by_rows else "whole")

    def _rows_are_chosen(self, best: str) -> bool:
        """Whether layers are computed by rows where whole tensors fit; `best`: what estimates say."""

        def estimates() -> Mapping[str, float]:
            found = {"whole": run_cost(self.rankings, self.selected.chosen)}
            if not self.options.why_whole:
                with suppress(InputError, UnsupportedModelError):
                    found["by rows"] = self.selected.streamed.cost
            return found

        return self.context.choose("layers", best, estimates) == "by rows"

    def least_by_rows(self, io: str) -> int | None:
        """Bytes of RAM that layers by rows of full width need at least, of what is found, with another io.

        None: no layers can be computed so.
        """
        if self.scope.inner or self.sliding is not None or self.options.why_whole:
            return None
        cuts = Cuts(self.scope, replace(self.options, io=io))
        search = Search(cuts, self.selected.reference)
        return int(search.leanest) + self.scope.state_size if cuts.promising else None

    @cached_property
    def calls(self) -> list[KernelCall]:
        """Those of the chosen kernels."""
        return self.selected.own_calls if self.revise is None else self.selected.calls(self.chosen)

    @cached_property
    def planned(self) -> Planned:
        """In which order the calls come, and where everything lies."""
        kernels = [candidate.kernel for candidate in self.chosen]
        if self.scope.inner:
            memory = self.selected.memory(kernels, self.calls)
            return Planned(range(len(kernels)), self.scope, memory)
        selected = self.selected
        found = selected.schedule if self.revise is None else selected.planner.schedule(kernels, self.calls)
        scope = self.scope.in_order(found.graph, found.order)
        return Planned(found.order, scope, ScopeMemory(found.memory, {}, {}))

    @property
    def figures(self) -> Figures:
        """Time and memory of an inference, by estimates.

        Raises:
            UnsupportedModelError: some layers have no kernel.
            InputError: nothing fits the flash or the RAM that the options allow.
        """
        if self.by_rows:
            return self.streamed.figures
        exact = self.selected.exact
        flash = exact.figures.flash if self.revise is None else exact.flash_of(self.chosen)
        return Figures(run_cost(self.rankings, self.chosen), flash, self.planned.memory.size)

    def with_fetched(self, fetched: Mapping[int, int]) -> Planned:
        """The same order of calls, with room for constants that are copied into the arena; see `plan_memory`.

        Raises:
            InputError: this takes more RAM than the options allow.
        """
        order, scope = self.planned.order, self.planned.scope
        layers = [self.rankings[index].layer for index in order]
        kernels = [self.chosen[index].kernel for index in order]
        memory = plan_memory(
            scope.graph,
            [*zip(layers, kernels, strict=True)],
            [self.calls[index] for index in order],
            include_io=self.selected.io_in_arena,
            alignment=self.options.align,
            fetched=fetched,
        )
        self._check_ram(memory.size, "with room for the constants that are prefetched")
        return Planned(order, scope, ScopeMemory(memory, {}, {}))

    def _check_ram(self, arena: int, how: str) -> None:
        """Raises InputError if this arena is larger than the options allow."""
        limit = self.options.ram
        needed = arena + self.scope.state_size
        if limit is not None and needed > limit:
            raise InputError(
                f"arena and state must fit {limit} bytes; {how}, they have {needed}: allow more, or give the "
                "target larger memories"
            )

    @property
    def parts_fit(self) -> bool:
        """Whether the parts of the arena fit the RAM with all that fast memories can hold in these."""
        try:
            _, sizes = self._free_parts
        except InputError:
            return False
        return self.options.ram is None or sum(sizes) + self.scope.state_size <= self.options.ram

    @cached_property
    def _free_parts(self) -> tuple[Planned, tuple[int, ...]]:
        """The parts with any RAM."""
        return self._in_parts(self.planned)

    def in_parts(self, planned: Planned) -> tuple[Planned, tuple[int, ...]]:
        """The same with the arena in the memories of the target, and the bytes of its parts.

        Raises:
            InputError: the target has no memories for that, layers run others, or it takes more RAM than the
                options allow.
        """
        if self.unlimited and planned is self.planned and self.parts_fit:
            return self._free_parts  # the limit would leave them as they are
        allowed = None if self.options.ram is None else self.options.ram - self.scope.state_size
        found = self._in_parts(planned, allowed)
        self._check_ram(found[0].memory.size, "in parts")
        return found

    def _in_parts(self, planned: Planned, allowed: int | None = None) -> tuple[Planned, tuple[int, ...]]:
        """The same for so many bytes of arena, if there is such a plan."""
        memories = [memory for memory in self.target.memories if "data" in memory.use]
        if len(memories) < 2:
            raise InputError(
                "memory=parts is for targets that name several memories for data; "
                f"{self.target.name} names {len(memories)}: take memory=split, or describe them in a .toml"
            )
        if self.scope.inner:
            raise InputError("memory=parts is for models without loops and conditions: take memory=split")
        memories.sort(key=lambda memory: memory.cycles)
        own = planned.memory.own
        accesses = dict.fromkeys(own.blocks, 0)
        for position, index in enumerate(planned.order):
            node, macs = self.rankings[index].layer.node, _macs(self.chosen[index], self.rankings[index])
            for value in (*node.operands, *node.outputs):
                if value in own.owners:
                    products = macs if value in node.operands[:1] else 0
                    accesses[own.owners[value]] += value.type.size + products
            for block in (own.scratch.get(position), own.fetched.get(position)):
                if block is not None:
                    accesses[block] += macs + block.size
        rooms = [memory.size for memory in memories]
        alignment = self.options.align
        plan = plan_parts(own.blocks, own.overlaps, accesses, rooms, alignment, own.arena, allowed)
        check_parts(own.blocks, plan)
        memory = replace(planned.memory, own=replace(own, arena=plan.arena))
        return replace(planned, memory=memory), plan.sizes


@frozen
class Planned:
    """The calls of a model in their order.

    Attributes:
        order: as indices into `Way.rankings`.
        scope: of the graph with its nodes in this order.
    """

    order: Sequence[int]
    scope: Scope
    memory: ScopeMemory


def _macs(chosen: Candidate, ranking: Ranking) -> int:
    """Multiply-accumulates of a layer."""
    return sum(node.macs() for node in chosen.kernel.work(ranking.layer))
