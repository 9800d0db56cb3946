"""From the way of a model to its program: the calls in their order, and where everything lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from microfold.errors import InputError, Problem, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.ir.limits import MAX_BYTES
from microfold.kernels.call import KernelCall
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.kernels.selection.objective import Figures, objective_of
from microfold.lowering.placement import check_alignment, check_placement
from microfold.lowering.schedule import Choice, Locator, Scheduler, model_places
from microfold.lowering.stream_layers import stream_buffers, stream_layers, stream_places
from microfold.lowering.way import Revise, Way
from microfold.ops.control.control_flow import While
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.passes.kinds import Pass
from microfold.program import Buffer, Program, StateSlot
from microfold.target import Target
from microfold.transform.simplify.split_grouped_conv2d import may_split


def find_way(
    graph: Graph,
    target: Target,
    options: Options,
    context: PassContext | None,
    passes: Pass | None = None,
    costs: MeasuredCosts | None = None,
    revise: Revise | None = None,
) -> Way:
    """The way of a model, with what the options want of the passes besides the context.

    For the least flash, loops are written out only where that is better by the objective. Passes take no RAM
    for fewer instructions where a limit of RAM is met only so. Where the arena has parts, a limit of one
    arena asks for other kernels than one of all parts: those without a limit are taken if they fit.
    """
    context = context or PassContext(numerics="relaxed" if options.numerics == "relaxed" else "exact")

    quiet = replace(context, sink=None, instruments=())

    def figures_with(unroll: int, spare_ram: bool = False) -> Figures | None:
        """Return what the model takes with loops written out to so many nodes; None: it is refused."""
        trial = replace(quiet, spare_ram=spare_ram)
        try:
            return Way(graph, target, options, trial, unroll, passes, costs).figures
        except (UnsupportedModelError, InputError):
            return None

    unroll = options.unroll
    if options.optimize == "size" and has_loops(graph):
        looped, written_out = figures_with(0), figures_with(unroll)
        objective = objective_of(options)
        if looped and (
            not written_out or objective.value(looped, looped) <= objective.value(written_out, looped)
        ):
            unroll = 0
    if options.ram is not None and may_split(graph) and figures_with(unroll) is None:
        context = replace(context, spare_ram=figures_with(unroll, spare_ram=True) is not None)
    if options.in_parts and options.ram is not None:
        free = Way(graph, target, options, context, unroll, passes, costs, revise, unlimited=True)
        if free.parts_fit:
            return free
    return Way(graph, target, options, context, unroll, passes, costs, revise)


def has_loops(graph: Graph) -> bool:
    """Whether the model, as imported, repeats something."""
    return any(isinstance(node.op, While) for node in graph.nodes) or any(
        has_loops(body) for body in graph.subgraphs.values()
    )


def lower(way: Way, name: str, fetched: Mapping[int, int] | None = None) -> Program:
    """A program; `fetched`: see `plan_memory`, by the layers' indices."""
    program = _by_rows(way, name) if way.by_rows else _whole(way, name, fetched)
    check_placement(program.calls, way.options)
    check_alignment(program)
    return program


def _whole(way: Way, name: str, fetched: Mapping[int, int] | None) -> Program:
    """A program whose layers compute whole tensors."""
    options = way.options
    planned = way.planned if not fetched else way.with_fetched(fetched)
    parts: tuple[int, ...] = ()
    if options.in_parts:
        planned, parts = way.in_parts(planned)
    graph, memory, order = planned.scope.graph, planned.memory, planned.order
    calls = _with_functions(
        [way.calls[index] for index in order], [way.selected.own_copy[index] for index in order]
    )
    arena = memory.own.arena
    if arena.size > MAX_BYTES:
        where, reason = (
            f"graph {way.source.name!r}",
            f"an arena may have {MAX_BYTES} bytes; it has {arena.size}",
        )
        raise UnsupportedModelError(way.source.name, [Problem(where, reason, "make its tensors smaller")])
    locate = Locator(graph, memory, model_places(graph, options))
    choices = [Choice(way.chosen[place], call) for place, call in zip(order, calls, strict=True)]
    layers = Scheduler(choices).layers(planned.scope, memory, locate)
    return Program(
        name=name,
        source=way.source,
        graph=graph,
        target=way.target,
        options=options,
        inputs=tuple(locate(value) for value in graph.inputs),
        outputs=tuple(locate(value) for value in graph.outputs),
        layers=layers,
        state=tuple(StateSlot(locate(s.value), _moved(locate(s.value), locate(s.next))) for s in graph.state),
        arena=arena,
        flash=way.figures.flash,
        parts=parts,
        kernels_proved=way.kernels_proved,
    )


def _by_rows(way: Way, name: str) -> Program:
    """A program of which some layers are computed row by row."""
    options, found = way.options, way.streamed
    graph = found.planner.whole
    calls = _with_functions(found.calls, found.selection.own_copy)
    places = stream_places(graph, options)
    return Program(
        name=name,
        source=way.source,
        graph=graph,
        target=way.target,
        options=options,
        inputs=stream_buffers(found, graph.inputs, places),
        outputs=stream_buffers(found, graph.outputs, places),
        layers=stream_layers(found, calls, places),
        state=tuple(
            StateSlot(before, _moved(before, after))
            for before, after in (
                stream_buffers(found, [state.value, state.next], places) for state in graph.state
            )
        ),
        arena=found.memory.arena,
        flash=found.flash,
        stream=found.memory,
    )


def _with_functions(calls: Sequence[KernelCall], own_copy: Sequence[bool]) -> list[KernelCall]:
    """Return the calls with a function of its own for each layer that is to have one.

    Compilers put a layer's numbers into the code of a function that nothing else calls.
    """
    uses = Counter(call.function for call in calls)
    return [
        replace(call, function=replace(call.function, only_layer=index))
        if own and call.function.library is None and uses[call.function] > 1
        else call
        for index, (call, own) in enumerate(zip(calls, own_copy, strict=True))
    ]


def _moved(state: Buffer, after: Buffer) -> Buffer | None:
    """Where the next content of a state is computed; None if that is where the state lies."""
    return None if (state.region, state.offset) == (after.region, after.offset) else after
