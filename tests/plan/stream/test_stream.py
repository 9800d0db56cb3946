"""Streams of random networks: checked, and the same bits as whole tensors; every wrong address is seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from microfold.errors import GraphError
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value
from microfold.ir.types import Array
from microfold.ir.views import ALIGNMENT
from microfold.kernels.band import lowered
from microfold.kernels.selection.candidates import candidates
from microfold.ops.elementwise.add import Add
from microfold.plan.stream.check import check_stream
from microfold.plan.stream.check_memory import check_memory, computing_of
from microfold.plan.stream.memory import StreamMemory
from microfold.plan.stream.operations import (
    Fill,
    IndirectionBuffer,
    MoveRows,
    Operation,
    ReceiveRow,
    RowsCall,
    WindowAddress,
)
from microfold.plan.stream.region import StreamRegion
from microfold.plan.stream.row_node import pitch
from tests.plan.stream.nets import Bytes, Nets, planned, region

SEEDS = range(14)
MANY = range(1000, 1300)
WIDTHS = (1, 2, 3, 5, 2)


def streams(seeds: range) -> Iterator[tuple[Graph, StreamRegion]]:
    """Regions of random networks: the first nodes, as many as the seed says.

    Calls compute a row where all nodes are in it, elsewhere different numbers of rows.
    """
    for seed in seeds:
        graph = Nets(seed).draw()
        for count in {1 + seed % len(graph.nodes), len(graph.nodes)}:
            found = region(graph, count, (1,) if count == len(graph.nodes) else WIDTHS[seed % 3 :])
            if isinstance(found, StreamRegion):
                yield graph, found


def rings(seeds: range) -> Iterator[tuple[Graph, StreamRegion]]:
    """Regions whose rows stay in rings, as far as kernels take addresses."""
    for graph, found in streams(seeds):
        values = found.may_be_rings
        if values:
            yield graph, found.with_rings(values)
        if len(values) > 1:
            yield graph, found.with_rings(values[1:])


def carried(seeds: range) -> Iterator[tuple[Graph, StreamRegion]]:
    """Regions whose rows are carried, all of them, or some where others stay in rings and windows."""
    for graph, found in (*streams(seeds), *held(seeds)):
        values = found.may_be_carried
        if values:
            yield graph, found.with_rings((), values)
        if len(values) > 1:
            yield graph, found.with_rings(values[::2], values[1:])
            yield graph, found.with_rings((), values[1:])


def held(seeds: range) -> Iterator[tuple[Graph, StreamRegion]]:
    """The same of regions that begin with what is there whole: the input, or results of nodes before them."""
    for seed in seeds:
        graph = Nets(seed).draw()
        start = seed % 3
        for count in {min(start + 2, len(graph.nodes)), len(graph.nodes)}:
            found = region(graph, count, WIDTHS[seed % 3 :], start, pushed=start > 0) if count > start else ""
            if isinstance(found, StreamRegion):
                yield graph, found


def fronts(memory: StreamMemory) -> dict[Value, int]:
    """Where lies what is held whole behind the only region."""
    (region,) = memory.timeline.regions
    return {value: memory.address(value) for value in region.fronts}


def expected(graph: Graph, image: Array) -> dict[Value, Array]:
    values: dict[Value, Array] = {}
    Interpreter(graph).run(
        image,
        observe=lambda node, found: values.update(zip(node.outputs, (f.data for f in found), strict=True)),
    )
    return values


def assert_streams_are_right(regions: Iterator[tuple[Graph, StreamRegion]]) -> int:
    count = 0
    for graph, found in regions:
        planner, kernels = planned(graph, found)
        calls = [lowered(kernel, layer) for kernel, layer in zip(kernels, planner.layers, strict=True)]
        memory = planner.plan(kernels, calls)
        check_memory(memory, kernels)
        assert memory.arena.bound <= memory.size
        image = np.random.default_rng(count).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
        arena = Bytes(memory, image)
        values = expected(graph, image) | {graph.inputs[0]: image}
        for value in found.sources:
            arena.write(WindowAddress(value, memory.address(value) - memory.windows[value]), values[value])
        arena.run(planner.streams[0][0].all_operations)
        for (value, row), data in arena.got.items():
            np.testing.assert_array_equal(data, values[value][:, row])
        for value, address in (fronts(memory) | {v: memory.address(v) for v in found.outlives}).items():
            whole = arena.memory[address : address + value.type.nbytes].view(np.int8)
            np.testing.assert_array_equal(whole, values[value].reshape(-1))
        count += 1
    return count


def test_random_streams_are_whole_tensors() -> None:
    assert assert_streams_are_right(streams(SEEDS)) >= 15


def test_random_streams_with_rings() -> None:
    assert assert_streams_are_right(rings(SEEDS)) >= 12


def test_random_streams_with_carried_rows() -> None:
    assert assert_streams_are_right(carried(SEEDS)) >= 40


def test_random_streams_of_what_is_there_whole() -> None:
    assert assert_streams_are_right(held(SEEDS)) >= 15


def test_padding_in_front_of_what_is_there_whole_is_counted_in_overlaps() -> None:
    """The window of such a value need not begin where its storage does: here, 5 bytes behind it.

    Its only reader, a kernel that computes in place, lies over the first row that it reads, or over none.
    """
    seed = 1277
    regions = [found for _, found in held(range(seed, seed + 1))]
    assert any(found.above(value) * pitch(value) % ALIGNMENT for found in regions for value in found.sources)
    assert assert_streams_are_right(held(range(seed, seed + 1))) == len(regions)


def test_storage_of_which_two_parts_are_read_is_left_alone() -> None:
    """What would be right over one of them need not be over the other."""
    graph = Nets(0).halves()
    total = next(node for node in graph.nodes if isinstance(node.op, Add))
    found = region(graph, len(graph.nodes), total.output.type.shape[1:2], graph.nodes.index(total))
    assert isinstance(found, StreamRegion)
    planner, kernels = planned(graph, found)
    index = next(i for i, layer in enumerate(planner.layers) if isinstance(layer.node.op, Add))
    kernel = kernels[index]
    assert kernel.overlap(planner.layers[index], 0) is not None
    assert not planner.overlaps(index, kernel)


def test_results_lie_over_rows_that_are_given_up() -> None:
    """An input that is there whole, and what is computed of it, share bytes."""
    graph = Nets(0).tall()
    whole = region(graph, 1, pushed=False)
    assert isinstance(whole, StreamRegion)
    planner, _ = planned(graph, whole)
    # Those with the least scratch.
    kernels = [
        min(
            (each.kernel for each in candidates(layer) if each.cost is not None),
            key=lambda kernel: lowered(kernel, layer).scratch,
        )
        for layer in planner.layers
    ]
    calls = [lowered(kernel, layer) for kernel, layer in zip(kernels, planner.layers, strict=True)]
    memory = planner.plan(kernels, calls)
    check_memory(memory, kernels)
    image, front = graph.inputs[0], graph.nodes[0].output
    blocks = planner.window_blocks
    together = blocks[image].size + blocks[front].size
    shared = together - max(memory.arena.offsets[blocks[v]] + blocks[v].size for v in (image, front))
    assert shared > image.type.nbytes // 2


@pytest.mark.exhaustive
def test_many_random_streams_are_whole_tensors() -> None:
    assert assert_streams_are_right(streams(MANY)) >= 400


@pytest.mark.exhaustive
def test_many_random_streams_with_rings() -> None:
    assert assert_streams_are_right(rings(MANY)) >= 300


@pytest.mark.exhaustive
def test_many_random_streams_with_carried_rows() -> None:
    assert assert_streams_are_right(carried(MANY)) >= 600


@pytest.mark.exhaustive
def test_many_random_streams_of_what_is_there_whole() -> None:
    assert assert_streams_are_right(held(MANY)) >= 300


def shifted(operation: Operation, by: int) -> Iterator[Operation]:
    """The operation with one of its places elsewhere."""

    def moved(spot: WindowAddress) -> WindowAddress:
        return spot._replace(offset=spot.offset + by)

    def tables(table: IndirectionBuffer) -> Iterator[IndirectionBuffer]:
        for index, spot in enumerate(table.spots):
            yield IndirectionBuffer((*table.spots[:index], moved(spot), *table.spots[index + 1 :]))

    match operation:
        case ReceiveRow(_, _, spot) | Fill(_, _, _, spot):
            yield replace(operation, spot=moved(spot))
        case MoveRows(source, target, _):
            yield replace(operation, source=moved(source))
            yield replace(operation, target=moved(target))
        case RowsCall(_, _, inputs, output):
            yield replace(operation, output=moved(output))
            for index, spot in enumerate(inputs):
                for other in tables(spot) if isinstance(spot, IndirectionBuffer) else [moved(spot)]:
                    yield replace(operation, inputs=(*inputs[:index], other, *inputs[index + 1 :]))


def other_steps(operations: Sequence[Operation], index: int) -> Iterator[list[Operation]]:
    """Without an operation, with it twice, behind the one that follows it, and with other rows."""
    before, own, behind = [*operations[:index]], operations[index], [*operations[index + 1 :]]
    yield [*before, *behind]
    yield [*before, own, own, *behind]
    if behind:
        yield [*before, behind[0], own, *behind[1:]]
    match own:
        case ReceiveRow(_, row, _):
            yield [*before, replace(own, row=row + 1), *behind]
        case Fill(_, first, last, _):
            yield [*before, replace(own, first=first + 1, last=last + 1), *behind]
        case MoveRows(_, _, size):
            yield [*before, replace(own, size=size - 8), *behind]
        case RowsCall(node, part, _, _):
            # Of others there is no layer that could be called.
            calls = (each for each in operations if isinstance(each, RowsCall) and each.node is node)
            forms = {node.forms[each.part] for each in calls}
            yield from (
                [*before, replace(own, part=other), *behind]
                for other in (part - 1, part + 1)
                if 0 <= other < len(node.parts) and node.forms[other] in forms
            )


def seen_and_missed(seeds: range, count: int, every: int) -> tuple[int, int]:
    """Streams with a fault: how many the checker sees, and how many others compute the same rows anyway.

    Args:
        count: of streams with windows, of those with rings, and of those with carried rows.
        every: of so many operations one is changed.
    """
    seen = missed = 0
    for graph, found in (
        *itertools.islice(streams(seeds), count),
        *itertools.islice(rings(seeds), count),
        *itertools.islice((each for each in carried(seeds) if not each[1].sources), count),
    ):
        planner, kernels = planned(graph, found)
        calls = [lowered(kernel, layer) for kernel, layer in zip(kernels, planner.layers, strict=True)]
        memory = planner.plan(kernels, calls)
        operations = [*planner.streams[0][0].all_operations]
        image = np.random.default_rng(seen).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
        values = expected(graph, image)
        computing = computing_of(memory, kernels)
        changes = [
            [*operations[:index], wrong, *operations[index + 1 :]]
            for index in range(0, len(operations), every)
            for by in ((-8, 8) if every == 1 else (-8 if index % 2 else 8,))
            for wrong in shifted(operations[index], by)
        ]
        changes += [c for i in range(0, len(operations), every) for c in other_steps(operations, i)]
        for changed in changes:
            try:
                check_stream(
                    changed, memory.windows, memory.size, computing, fronts(memory), newest=memory.newest
                )
            except GraphError:
                seen += 1
                continue
            missed += 1
            arena = Bytes(memory, image)
            arena.run(changed)
            for (value, row), data in arena.got.items():
                np.testing.assert_array_equal(data, values[value][:, row])
    return seen, missed


def test_every_fault_is_seen() -> None:
    """Of rows that something reads; others may lie anywhere, and be filled at any time."""
    seen, missed = seen_and_missed(range(200, 230), 8, 4)
    assert seen > 300
    assert missed * 5 <= seen


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(400, 520, 30))
def test_thousands_of_faults_are_seen(first: int) -> None:
    seen, missed = seen_and_missed(range(first, first + 30), 20, 1)
    assert seen > 3000
    assert missed * 5 <= seen


def test_windows_that_share_bytes_are_seen() -> None:
    for graph, found in itertools.islice(streams(range(300, 330)), 8):
        planner, kernels = planned(graph, found)
        calls = [lowered(kernel, layer) for kernel, layer in zip(kernels, planner.layers, strict=True)]
        memory = planner.plan(kernels, calls)
        allowed = [
            {o.source, o.target} for i, kernel in enumerate(kernels) for o in planner.overlaps(i, kernel)
        ]
        blocks = planner.window_blocks
        for one, other in itertools.combinations(blocks.values(), 2):
            if not one.times & other.times or {one, other} in allowed:
                continue
            offsets = dict(memory.arena.offsets) | {one: memory.arena.offsets[other]}
            wrong = replace(memory, arena=replace(memory.arena, offsets=offsets))
            with pytest.raises(GraphError):
                check_memory(wrong, kernels)
