"""Last stage of a build: from kernels and a memory plan to the program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from microfold.errors import Problem, UnsupportedModelError
from microfold.ir.limits import MAX_BYTES
from microfold.kernels.call import KernelCall
from microfold.lowering.choose import ChosenKernels
from microfold.lowering.chosen_kernels import StreamedModel, WholeTensors
from microfold.lowering.placement import check_alignment, check_placement
from microfold.lowering.schedule import KernelChoice, Locator, Scheduler, model_places
from microfold.lowering.stream_layers import stream_buffers, stream_layers, stream_places
from microfold.program import Buffer, Program, StateSlot


def lower(
    kernels: WholeTensors | StreamedModel, name: str, fetched: Mapping[int, int] | None = None
) -> Program:
    """Return the program of a model.

    Args:
        fetched: bytes by layer index, see `plan_memory`.
    """
    program = (
        _by_rows(kernels, name) if isinstance(kernels, StreamedModel) else _whole(kernels, name, fetched)
    )
    check_placement(program.calls, program.options)
    check_alignment(program)
    return program


def _whole(kernels: WholeTensors, name: str, fetched: Mapping[int, int] | None) -> Program:
    """Return the program of layers that compute whole tensors."""
    model = kernels.model
    options, source = model.options, model.source
    planned = kernels.with_fetched(fetched) if fetched else kernels.planned
    parts: tuple[int, ...] = ()
    if options.in_parts:
        planned, parts = kernels.in_parts(planned)
    graph, memory, order = planned.scope.graph, planned.memory, planned.order
    calls = _with_functions([kernels.calls[index] for index in order], kernels.selection, order)
    arena = memory.own.arena
    if arena.size > MAX_BYTES:
        where, reason = f"graph {source.name!r}", f"an arena may have {MAX_BYTES} bytes; it has {arena.size}"
        raise UnsupportedModelError(source.name, [Problem(where, reason, "make its tensors smaller")])
    locate = Locator(graph, memory, model_places(graph, options))
    choices = [KernelChoice(kernels.chosen[place], call) for place, call in zip(order, calls, strict=True)]
    layers = Scheduler(choices).layers(planned.scope, memory, locate)
    return Program(
        name=name,
        source=source,
        graph=graph,
        target=model.target,
        options=options,
        inputs=tuple(locate(value) for value in graph.inputs),
        outputs=tuple(locate(value) for value in graph.outputs),
        layers=layers,
        state=tuple(StateSlot(locate(s.value), _moved(locate(s.value), locate(s.next))) for s in graph.state),
        arena=arena,
        flash=kernels.figures.flash,
        parts=parts,
        kernels_proved=kernels.proved,
    )


def _by_rows(kernels: StreamedModel, name: str) -> Program:
    """Return the program of a model that streams some of its layers."""
    model, found = kernels.model, kernels.streamed
    graph = found.planner.whole
    calls = _with_functions(found.calls, found.selection, range(len(found.calls)))
    places = stream_places(graph, model.options)
    return Program(
        name=name,
        source=model.source,
        graph=graph,
        target=model.target,
        options=model.options,
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


def _with_functions(
    calls: Sequence[KernelCall], selection: ChosenKernels, order: Sequence[int]
) -> list[KernelCall]:
    """Return the calls, with a separate function for each layer that is to have one.

    Compilers propagate a layer's constants into a function that no other layer calls.

    Args:
        order: order of the calls, as indices of layers.
    """
    uses = Counter(call.function for call in calls)
    others = {*selection.elsewhere, *(function for function, count in uses.items() if count > 1)}
    return [
        replace(call, function=replace(call.function, only_layer=position))
        if selection.own_copy[index] and call.function.library is None and call.function in others
        else call
        for position, (call, index) in enumerate(zip(calls, order, strict=True))
    ]


def _moved(state: Buffer, after: Buffer) -> Buffer | None:
    """Return the buffer of a state's next content; None if it is computed in the state's own buffer."""
    return None if (state.region, state.offset) == (after.region, after.offset) else after
