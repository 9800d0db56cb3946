"""Placement of a program in the memories of its target: items, with estimates of their accesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from microfold.codegen.fetching import fetched_bytes
from microfold.codegen.model import Model
from microfold.errors import InputError
from microfold.ir.views import StoragePlaces
from microfold.plan.overlap import align
from microfold.plan.regions import NoRoomError, RegionItem, Regions, check_regions, plan_regions
from microfold.program import ConstantKey, Layer, Program, constant_key

# Returns the program with room in the arena for this many bytes of constants of each layer, by layer index.
Replan = Callable[[Mapping[int, int]], Program]


def with_regions(program: Program, replan: Replan) -> Program:
    """Return the program with its context and its constants placed, if the target names memories.

    The firmware places everything that options put into a section or into a blob. Constants in memories from
    which the core does not compute get room in the arena. This changes the space for other items, so that all
    are placed again.

    Raises:
        InputError: something fits none of the memories.
    """
    if not program.target.memories:
        return program
    room: dict[int, int] = {}
    while True:
        try:
            placed = _with_regions(program)
        except NoRoomError as refusal:
            why = _why_not_fetched(program) if refusal.item.use == "constants" else ""
            raise InputError(f"{refusal}{why}") from None
        needed = {layer.index: fetched_bytes(placed, layer) for layer in placed.layers}
        more = {index: size for index, size in needed.items() if size > room.get(index, 0)}
        if not more:
            return placed
        room |= more
        program = replan(room)


def _with_regions(program: Program) -> Program:
    model, calls = Model(program), [*_calls(program.layers)]
    context = _context(model, calls)
    arena = [
        _arena([model], size, f", part {index + 1}" if index else "", index)
        for index, size in enumerate(model.arena_sizes if model.split else ())
    ]
    return _placed([program], [context], arena, [_constants(model, calls)])[0]


def _why_not_fetched(program: Program) -> str:
    """Return why nothing is prefetched, if the way in which the program runs is the reason; else ""."""
    names = ", ".join(memory.name for memory in program.target.memories if memory.prefetch)
    if not names:
        return ""
    if program.stream is not None:
        way = "--io rows" if program.options.io == "rows" else "a --ram below that of whole tensors"
        return f"; with layers by rows, nothing is prefetched: remove {way}, or prefetch of {names}"
    if any(layer.control is not None for layer in program.layers):
        return f"; with loops or conditions, nothing is prefetched: remove prefetch of {names}"
    return ""


def with_shared_regions(programs: Sequence[Program], arena: int) -> list[Program]:
    """Return programs whose items and shared arena are placed.

    Args:
        arena: size of the shared arena, in bytes.

    Raises:
        InputError: something fits none of the memories.
    """
    if not programs[0].target.memories:
        return [*programs]
    if prefetched := [memory.name for memory in programs[0].target.memories if memory.prefetch]:
        raise InputError(
            f"several models must be placed in memories that the core reads; {', '.join(prefetched)} is "
            "for prefetching: build the models one by one, or choose another target"
        )
    # Regions that a program would have alone do not count.
    models = [Model(replace(program, regions=None)) for program in programs]
    calls = [[*_calls(program.layers)] for program in programs]
    contexts = [_context(model, own) for model, own in zip(models, calls, strict=True)]
    constants = [_constants(model, own) for model, own in zip(models, calls, strict=True)]
    return _placed(programs, contexts, [_arena(models, arena)], constants)


def _placed(
    programs: Sequence[Program],
    contexts: Sequence[RegionItem],
    arena: Sequence[RegionItem],
    constants: Sequence[Mapping[ConstantKey, RegionItem]],
) -> list[Program]:
    """Return programs with one plan for all of them; `arena`: parts of an arena outside of the contexts."""
    items = [*contexts, *arena, *(item for own in constants for item in own.values())]
    plan = plan_regions(items, programs[0].target.memories)
    check_regions(items, plan)
    placed: list[Program] = []
    for program, context, own in zip(programs, contexts, constants, strict=True):
        places = {key: plan.places[item] for key, item in own.items()}
        home = plan.places[context]
        shared = tuple(plan.places[item] for item in arena) or (home,)
        placed.append(replace(program, regions=Regions(plan, home, places, shared)))
    return placed


def _context(model: Model, calls: Sequence[tuple[Layer, int]]) -> RegionItem:
    """Return the context, with or without the arena."""
    kept = sum(slot.buffer.type.size * (1 + (slot.next is not None)) for slot in model.program.state)
    label = "the context" if not model.split else f"the context of {model.name}"
    return RegionItem(label, align(model.context_size), kept if model.split else _activations(calls), "data")


def _arena(models: Sequence[Model], size: int, label: str = "", part: int = 0) -> RegionItem:
    """Return an arena outside of the contexts, which all models read; its first part is read most often."""
    accesses = sum(_activations([*_calls(model.program.layers)]) for model in models) // (1 + part)
    return RegionItem(f"the arena{label}", align(size, models[0].alignment), accesses, "data")


def _constants(model: Model, calls: Sequence[tuple[Layer, int]]) -> dict[ConstantKey, RegionItem]:
    """Return the constants that no option places."""
    options = model.options
    planned = [] if options.weights == "blob" or options.weights_section else model.arrays
    counts, copied = _accesses(calls), _may_be_fetched(model.program)
    unit = max([8, *(array.alignment for array in planned)])
    return {
        key: RegionItem(
            array.name,
            align(array.array.nbytes, unit),
            counts[key] or array.array.size,
            "constants",
            key not in copied,
        )
        for array in planned
        if not array.section
        for key in [constant_key(array.array, array.record)]
    }


def _may_be_fetched(program: Program) -> set[ConstantKey]:
    """Return the constants that only layers outside of loops, branches and streaming read."""
    if program.stream is not None or any(layer.control is not None for layer in program.layers):
        return set()
    alignment = program.options.align
    own = [layer for layer in program.layers if layer.call.function.library is None]
    constants = [constant for layer in own for constant in layer.call.constants.values()]
    found = {constant_key(c.array, c.record) for c in constants if c.alignment <= alignment}
    places = StoragePlaces(program.graphs)
    read = (
        buffer.value for layer in program.layers for buffer in layer.inputs if buffer.region == "constant"
    )
    direct = [(places.constant(value), "") for value in read]
    direct += [(state.initial, "") for state in program.graph.state]
    outside = [layer for layer in program.layers if layer.call.function.library is not None]
    direct += [(c.array, c.record) for layer in outside for c in layer.call.constants.values()]
    return found - {constant_key(array, record) for array, record in direct}


def _calls(layers: Sequence[Layer], runs: int = 1) -> Iterator[tuple[Layer, int]]:
    """Yield all calls of functions, with the maximum number of times that each runs."""
    for layer in layers:
        if layer.control is None:
            yield layer, runs
        for block, times in layer.blocks:
            yield from _calls(block.layers, runs * times)


def _accesses(calls: Sequence[tuple[Layer, int]]) -> Counter[ConstantKey]:
    """Count the reads of constants' elements in one run.

    The estimate assumes that a layer reads its largest constant once for each product, and other constants
    (biases, tables) once for each element of the result. It ignores reuse in registers, which all kernels
    have.
    """
    counts: Counter[ConstantKey] = Counter()
    for layer, runs in calls:
        constants = sorted(layer.call.constants.values(), key=lambda c: -c.array.nbytes)
        results = sum(buffer.type.size for buffer in layer.outputs)
        for index, constant in enumerate(constants):
            reads = layer.macs if index == 0 and layer.macs else results
            counts[constant_key(constant.array, constant.record)] += runs * reads
    return counts


def _activations(calls: Sequence[tuple[Layer, int]]) -> int:
    """Return the accesses to the context: an operand per product, and all elements of inputs and outputs."""
    return sum(
        runs * (layer.macs + sum(buffer.type.size for buffer in (*layer.inputs, *layer.outputs)))
        for layer, runs in calls
    )
