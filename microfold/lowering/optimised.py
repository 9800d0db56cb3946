"""First stage of a build: runs the passes, and ranks the kernels that can compute the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import BudgetError, InputError, UnsupportedModelError
from microfold.external.registry import resolve
from microfold.ir.domain import admit
from microfold.ir.graph import Graph
from microfold.kernels.selection.candidates import LayerCandidates
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.kernels.selection.node_cost import NodeCosts
from microfold.kernels.selection.objective import SelectionFigures, objective_of
from microfold.kernels.selection.pins import NO_PINS, Pins, resolve_pins
from microfold.lowering.chosen_kernels import StreamedModel, WholeTensors, choose_kernels
from microfold.lowering.pinnable import pinnable_layers
from microfold.lowering.selection_result import MemoryEstimator, SelectionResult
from microfold.ops.control.control_flow import While
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.pipeline import chosen_pipeline, slide
from microfold.target import Target
from microfold.transform.layout.io_layout import with_io_layout
from microfold.transform.requested.io_types import with_io_types
from microfold.transform.requested.slide_window import Sliding
from microfold.transform.simplify.split_grouped_conv2d import may_split
from microfold.transform.subgraphs.limit_loops import with_limited_loops


class ImportedModel(Struct, frozen=True, eq=False):
    """An imported graph, with everything that determines its build.

    Attributes:
        context: pass selection, and information for passes in addition to the options.
        costs: measured times of kernels; None if estimates decide.
    """

    graph: Graph
    target: Target
    options: Options
    context: PassContext
    costs: MeasuredCosts | None = None

    @classmethod
    def of(
        cls,
        graph: Graph,
        target: Target,
        options: Options,
        context: PassContext | None = None,
        costs: MeasuredCosts | None = None,
    ) -> ImportedModel:
        """Return an imported graph; without a context, nothing is requested in addition to the options."""
        context = context or PassContext(numerics="relaxed" if options.numerics == "relaxed" else "exact")
        return cls(graph, target, options, context, costs)

    @property
    def quiet(self) -> ImportedModel:
        """The model with passes that are not observed."""
        return replace(self, context=replace(self.context, sink=None, instruments=()))


class OptimisedModel(Struct, frozen=True, eq=False, dict=True):
    """A model after the passes, with the kernels that could compute its layers.

    Attributes:
        source: model as the caller sees it, which is the reference.
        options: options of the build.
        context: information for the passes.
        decisions: decisions of the passes.
        sliding: origin of `source`, if runs receive only new frames.
        estimated: candidates with estimated times.
        selected: candidates with measured times, if they were measured.
        unlimited: whether passes and kernels were chosen without the limit of RAM.
    """

    source: Graph
    target: Target
    options: Options
    context: PassContext
    decisions: Sequence[Decision]
    sliding: Sliding | None
    estimated: SelectionResult
    selected: SelectionResult
    unlimited: bool

    @property
    def graph(self) -> Graph:
        """Optimised graph; a plan may have its nodes in another order."""
        return self.selected.graph

    @property
    def rankings(self) -> list[LayerCandidates]:
        """All layers in the graph's order. Each layer is followed by the layers that it runs."""
        return self.selected.rankings

    def with_options(self, options: Options) -> OptimisedModel:
        """Return the same graph for a build with other options; passes could decide otherwise with them."""
        estimated = self.estimated.with_options(options)
        selected = estimated if self.selected is self.estimated else self.selected.with_options(options)
        return replace(self, options=options, estimated=estimated, selected=selected)

    @cached_property
    def kernels(self) -> WholeTensors | StreamedModel:
        """Best kernels of all layers; see `choose_kernels`."""
        return choose_kernels(self)


def optimised(model: ImportedModel) -> OptimisedModel:
    """Run the passes with the settings of the options and of the context.

    With `--optimize size`, loops are unrolled only if that is better by the objective. RAM-for-speed rewrites
    are disabled if the RAM limit cannot be met otherwise. With a segmented arena, a limit for one arena would
    select other kernels than a limit for all parts. Therefore the kernels without a limit are used if they
    fit.

    Raises:
        InputError: options and context request different numerics, or pins name unknown layers or kernels.
    """
    options = model.options
    quiet = model.quiet
    unroll = options.unroll
    if options.optimize == "size" and has_loops(model.graph):
        looped, written_out = _figures(quiet, 0), _figures(quiet, unroll)
        objective = objective_of(options)
        if looped and (
            not written_out or objective.value(looped, looped) <= objective.value(written_out, looped)
        ):
            unroll = 0
    if options.ram is not None and may_split(model.graph) and _figures(quiet, unroll) is None:
        spare = replace(quiet, context=replace(quiet.context, save_ram=True))
        fits = _figures(spare, unroll) is not None
        model = replace(model, context=replace(model.context, save_ram=fits))
    if options.in_parts and options.ram is not None:
        free = _run_passes(model, unroll, unlimited=True)
        if _parts_fit(free):
            return free
    found = _run_passes(model, unroll)
    if options.flash is not None and not options.kernels and 0 < _needed_flash(found) < math.inf:
        return min(found, _for_least_flash(model.quiet, unroll), key=_needed_flash)
    return found


def _for_least_flash(model: ImportedModel, unroll: int) -> OptimisedModel:
    """Run the passes for the least flash without a limit; if nothing fits, passes have nothing to compare."""
    options = model.options
    smallest = replace(options, flash=None, objective="flash=1")
    found = _run_passes(replace(model, options=smallest), unroll)
    reference = found.estimated.reference if not found.estimated.problems else None
    estimated = SelectionResult(found.graph, model.target, options, reference=reference)
    selected = _with_measured(estimated, model.costs)
    return replace(found, options=options, estimated=estimated, selected=selected)


def _with_measured(
    estimated: SelectionResult, costs: MeasuredCosts | None, pins: Pins = NO_PINS
) -> SelectionResult:
    """Return the candidates with measured times, if measured; the hundred percent is then measured also."""
    if costs is None:
        return estimated
    return SelectionResult(estimated.graph, estimated.target, estimated.options, costs, pins)


def _needed_flash(model: OptimisedModel) -> float:
    """Return the bytes of flash that the model needs if it exceeds the flash limit; 0 if it does not.

    Infinite if another error occurs.
    """
    try:
        _ = model.kernels
    except BudgetError as refusal:
        return refusal.least("flash") or math.inf
    except (UnsupportedModelError, InputError):
        return math.inf
    return 0


def _parts_fit(model: OptimisedModel) -> bool:
    """Return whether the parts of the arena fit the RAM, see `WholeTensors.parts_fit`."""
    try:
        return isinstance(model.kernels, WholeTensors) and model.kernels.parts_fit
    except InputError:
        return False


def _figures(model: ImportedModel, unroll: int) -> SelectionFigures | None:
    """Return the figures of the model with loops unrolled to at most `unroll` nodes; None if rejected."""
    try:
        return _run_passes(model, unroll).kernels.figures
    except (UnsupportedModelError, InputError):
        return None


def has_loops(graph: Graph) -> bool:
    """Return whether the imported model has loops."""
    return any(isinstance(node.op, While) for node in graph.nodes) or any(
        has_loops(body) for body in graph.subgraphs.values()
    )


def _run_passes(model: ImportedModel, unroll: int, *, unlimited: bool = False) -> OptimisedModel:
    """Run the passes on the graph that results from the options, and rank the kernels of the result.

    Args:
        unroll: maximum number of nodes to which a loop is unrolled.
        unlimited: see `OptimisedModel`.
    """
    target, options = model.target, model.options
    if model.context.numerics != options.numerics:
        raise InputError(
            "options and context must ask for the same numerics; "
            f"they ask for {options.numerics} and {model.context.numerics}"
        )
    admit(model.graph)
    context = _with_target(model.context, target, options, unroll)
    limited = with_limited_loops(model.graph, options.max_iterations, context)
    typed = with_io_types(limited, options.input_type, options.output_type, context)
    source, sliding = with_io_layout(typed, options.io_layout, context), None
    if options.sliding is not None:
        source, sliding = slide(source, options.sliding, options.sliding_step, context)
    pipeline = chosen_pipeline(context.pipeline)
    chosen_for = replace(options, ram=None) if unlimited else options
    # Measured costs rank kernels only. Passes still use estimates, because whole-program measurements enter
    # through `Choices`.
    estimates = MemoryEstimator(target, chosen_for, may_stream=sliding is None)
    told = replace(context, arenas=estimates if options.io != "rows" else None)
    decisions: list[Decision] = []
    graph = pipeline(source, told.reporting_to(decisions.append))
    estimated, pins = estimates.selected(graph), NO_PINS
    if options.kernels:
        pins = resolve_pins(options.kernels, pinnable_layers(estimated))
        estimated = SelectionResult(graph, target, chosen_for, pins=pins, reference=estimates.reference)
    selected = _with_measured(estimated, model.costs, pins)
    return OptimisedModel(
        source, target, options, context, decisions, sliding, estimated, selected, unlimited=unlimited
    )


def _with_target(context: PassContext, target: Target, options: Options, unroll: int) -> PassContext:
    """Return the context with the settings of target and options."""
    costs = NodeCosts(target, objective_of(options), compiled_for_size=options.optimize == "size")
    return replace(
        context,
        unroll=unroll,
        channel_block=target.channel_block,
        save_flash=context.save_flash or options.optimize == "size",
        node_cost=costs,
        node_scratch=costs.scratch,
        half_precision=target.half_precision,
        externals=resolve(options.external),
    )
