"""A program in the memories of its target: what there is to place, with estimates of its accesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from microfold.codegen.model import Model
from microfold.plan.overlap import align
from microfold.plan.regions import Item, Regions, check_regions, plan_regions
from microfold.program import Layer, Program, constant_key


def with_regions(program: Program) -> Program:
    """The program with a place for its context and its constants, if the target names memories.

    What the options place, or put into a blob, is the firmware's.

    Raises:
        InputError: something fits none of the memories.
    """
    memories = program.target.memories
    if not memories:
        return program
    model, options = Model(program), program.options
    calls = [*_calls(program.layers)]
    data = _data(model, calls)
    planned = [] if options.weights == "blob" or options.weights_section else model.arrays
    counts = _accesses(calls)
    unit = max([8, *(array.alignment for array in planned)])
    constants = {
        key: Item(array.name, align(array.array.nbytes, unit), counts[key] or array.array.size, "constants")
        for array in planned
        if not array.section
        for key in [constant_key(array.array, array.record)]
    }
    items = [*data, *constants.values()]
    plan = plan_regions(items, memories)
    check_regions(items, plan)
    places = {key: plan.places[item] for key, item in constants.items()}
    homes = [plan.places[item] for item in data]
    return replace(program, regions=Regions(plan, homes[0], places, homes[-1]))


def _data(model: Model, calls: Sequence[tuple[Layer, int]]) -> list[Item]:
    """What a firmware defines: the context, and the arena if it is apart from that."""
    if not model.split:
        return [Item("the context", align(model.context_size), _activations(calls), "data")]
    kept = sum(slot.buffer.type.size * (1 + (slot.next is not None)) for slot in model.program.state)
    arena = align(model.arena_bytes, max(model.alignment, 8))
    return [
        Item("the context", align(model.context_size), kept, "data"),
        Item("the arena", arena, _activations(calls), "data"),
    ]


def _calls(layers: Sequence[Layer], runs: int = 1) -> Iterator[tuple[Layer, int]]:
    """All calls of functions, with how often each runs at most."""
    for layer in layers:
        if layer.control is None:
            yield layer, runs
        for block, times in layer.blocks:
            yield from _calls(block.layers, runs * times)


def _accesses(calls: Sequence[tuple[Layer, int]]) -> Counter[tuple[str, str, bytes]]:
    """How often elements of constants are read in one run.

    A layer's largest constant is taken to be read once for each product, others, as biases and tables, once
    for each element of the result. That blocks of registers read less often is left out: all kernels have
    them.
    """
    counts: Counter[tuple[str, str, bytes]] = Counter()
    for layer, runs in calls:
        constants = sorted(layer.call.constants.values(), key=lambda c: -c.array.nbytes)
        results = sum(buffer.type.size for buffer in layer.outputs)
        for index, constant in enumerate(constants):
            reads = layer.macs if index == 0 and layer.macs else results
            counts[constant_key(constant.array, constant.record)] += runs * reads
    return counts


def _activations(calls: Sequence[tuple[Layer, int]]) -> int:
    """Accesses to the context: an operand of each product, and each element of operands and results."""
    return sum(
        runs * (layer.macs + sum(buffer.type.size for buffer in (*layer.inputs, *layer.outputs)))
        for layer, runs in calls
    )
