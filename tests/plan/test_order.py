"""The order of calls against all orders."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from microfold import target
from microfold.compiler import compile_graph, explain_kernels, layer_names
from microfold.ir.graph import Graph, State, verify
from microfold.ir.node import Value
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.movement.concatenate import Concatenate
from microfold.options import Options
from microfold.plan.bound import call_needs
from microfold.plan.liveness import Storage, computing_nodes
from microfold.plan.order import CallNeeds, better_order
from microfold.plan.overlap import Overlap, OverlapPermission
from microfold.verification import verify as verification
from tests.growth.families import FLOAT, Builder, build

HOST = target.load("host")


@st.composite
def networks(draw: st.DrawFn) -> list[CallNeeds]:
    """Up to six calls, each with a result of its own; the first value is given, some results stay."""
    count = draw(st.integers(1, 6))
    storages = [Storage("input", draw(st.integers(1, 90)), -1, 0)]
    calls: list[CallNeeds] = []
    for number in range(count):
        indices = draw(st.sets(st.integers(0, number), min_size=1, max_size=3))
        reads = [storages[index] for index in sorted(indices)]
        last = count if draw(st.booleans()) else 0
        storages.append(Storage(f"s{number}", draw(st.integers(1, 90)), number, max(number, last)))
        leave = [
            OverlapPermission(s, draw(st.integers(-s.size, 40)), draw(st.booleans()))
            for s in reads
            if draw(st.booleans())
        ]
        before = frozenset(index - 1 for index in indices if index)
        scratch = draw(st.sampled_from([0, 0, 24]))
        calls.append(CallNeeds(before, reads, [storages[-1]], storages[-1], leave, scratch))
    return calls


def _orders(calls: Sequence[CallNeeds]) -> Iterator[tuple[int, ...]]:
    for order in itertools.permutations(range(len(calls))):
        if all(order.index(b) < place for place, call in enumerate(order) for b in calls[call].before):
            yield order


def _peak(calls: Sequence[CallNeeds], order: Sequence[int]) -> int:
    """The largest need of a call, with lifetimes that follow from the order."""
    lives: dict[Storage, tuple[int, int]] = {}
    for moment, number in enumerate(order):
        call = calls[number]
        for storage in (*call.reads, *call.writes):
            first, _ = lives.get(storage, (-1 if storage.first < 0 else moment, 0))
            lives[storage] = first, len(calls) if storage.last >= len(calls) else moment
    moved = {s: Storage(s.label, s.size, first, last) for s, (first, last) in lives.items()}
    blocks = [*moved.values()]
    overlaps: list[Overlap] = []
    for moment, number in enumerate(order):
        call = calls[number]
        if call.scratch:
            blocks.append(Storage("scratch", call.scratch, moment, moment))
        assert call.target is not None
        overlaps += [
            Overlap(moved[leave.source], moved[call.target], leave.distance, leave.exact)
            for leave in call.allowed_overlaps
            if moved[leave.source].last == moment
        ]
    return max(call_needs(blocks, overlaps, len(order)))


@settings(max_examples=60)
@given(networks())
def test_no_order_is_better(calls: list[CallNeeds]) -> None:
    given_peak = _peak(calls, range(len(calls)))
    least = min(_peak(calls, order) for order in _orders(calls))
    found = better_order(calls)
    assert (given_peak if found is None else _peak(calls, found)) == least
    assert found is None or (tuple(found) in _orders(calls) and least < given_peak)


def _branches_with_state() -> Graph:
    """Rows of 64 are joined to one of 8 times the size and fall into it again, twice; a state is added."""
    b = Builder(0)
    x = b.input((1, 64))
    state = Value("s", x.type)
    x = b.add(x, state)
    wide = [b.emit(Concatenate(1), *[b.emit(LeakyRelu(0.1 * i, FLOAT), x)] * 8) for i in (1, 2)]
    parts = [[b.emit(LeakyRelu(0.1 * i, FLOAT), x) for i in range(3, 9)], wide]
    total = b.sum([b.sum(parts[0]), x])
    b.state.append(State(state, np.ones((1, 64), np.float32), total))
    return b.graph(b.sum(wide), total)


def test_a_tree_is_computed_branch_by_branch() -> None:
    """Its leaves come first in the model: then all of them are alive at once."""
    graph = build("tree", 64)
    program = compile_graph(graph, HOST)
    assert [layer.node for layer in program.layers] == computing_nodes(program.graph)
    assert sorted(map(id, program.graph.nodes)) != [*map(id, program.graph.nodes)]
    verify(program.graph)
    assert program.arena.size <= 16 * 8
    result = verification.verify(program, verification.input_sets([b.type for b in program.inputs], 2))
    assert result.exact


def test_states_are_read_before_they_change() -> None:
    program = compile_graph(_branches_with_state(), HOST)
    verify(program.graph)
    result = verification.verify(program, verification.input_sets([b.type for b in program.inputs], 3))
    assert result.exact


def test_the_models_order_is_kept_where_none_is_better() -> None:
    graph = build("residual", 20)
    names = [layer.label for layer in compile_graph(graph, HOST).layers]
    assert names == [name for name in (n.output.name for n in graph.nodes) if name in names]


def test_kernels_are_listed_in_the_order_of_the_build() -> None:
    graph = build("tree", 32)
    explained = explain_kernels(graph, HOST, Options())
    assert layer_names(explained) == [layer.name for layer in compile_graph(graph, HOST).layers]
