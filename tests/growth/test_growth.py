"""Work grows about as the graph does, in counted steps, and no stage recurses over it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from microfold.codegen.names import Namer
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.parse import parse
from microfold.lowering import streaming_partitions
from microfold.lowering.scope import LoweringScope
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.plan.bound import call_needs
from microfold.plan.liveness import Storage
from microfold.plan.stream.planner import StreamPlanner
from microfold.target import load
from microfold.transform.placement.slice_as_view import slice_as_view
from tests.growth.families import FAMILIES, build
from tests.growth.stages import Stages, Steps, other_passes, whole_compilation
from tests.sampling import quick, sampled

FOUND = Path(__file__).resolve().parents[1] / "models" / "found"
# Of graphs with four times the nodes: n log n, and some room.
GROWTH = 4 * 1.6
FAST = ("scaled_ladder", "transposed_fan", "quantizes")
SLOW = (
    "transposed_pools",
    "mixed_transposes",
    "transposed_parts",
    "far_scales",
    "distant_scales",
    "unscaled_ladder",
    "residual",
    "fan",
    "outputs",
    "states",
    "splits",
    "growing_concatenations",
    "views",
)


@pytest.fixture(scope="module", autouse=True)
def everything_is_loaded() -> None:
    for name in ("clips", "convolutions", "matrices"):
        whole_compilation(build(name, 6), Stages())


def steps(graph: Graph) -> Stages:
    counter = Steps()
    stages = Stages(counter)
    with counter.counting():
        whole_compilation(graph, stages)
    return stages


@pytest.mark.parametrize("name", quick([*FAST, *sampled(SLOW, 3)]))
def test_steps_grow_with_the_graph(name: str) -> None:
    small, large = (steps(build(name, size)).spent for size in (24, 96))
    assert large.total() <= GROWTH * small.total(), {
        stage: (small[stage], large[stage]) for stage in large if large[stage] > GROWTH * small[stage]
    }


def test_slices_grow_with_the_states() -> None:
    def spent(size: int) -> float:
        counter, graph = Steps(), build("states", size)
        with counter.counting():
            slice_as_view(graph, PassContext())
        return counter()

    assert spent(192) <= GROWTH * spent(48)


def test_needs_of_calls_grow_with_the_calls() -> None:
    def spent(size: int) -> float:
        counter, blocks = Steps(), [Storage(f"b{index}", 8, index, size) for index in range(size)]
        with counter.counting():
            call_needs(blocks, [], size)
        return counter()

    assert spent(192) <= GROWTH * spent(48)


def test_cuts_of_streams_grow_with_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prefix of a chain is a cut with events for all its rows; only so many events are looked at."""
    monkeypatch.setattr(streaming_partitions, "MOST_EVENTS", 500)
    monkeypatch.setattr(streaming_partitions, "MOST_EVENTS_OF_PREFIXES", 250)
    monkeypatch.setattr(streaming_partitions, "FURTHER_EVALUATIONS", 1)

    def spent(size: int) -> float:
        counter, graph = Steps(), build("image_softmax", size)
        scope = LoweringScope(graph, load("cortex-m7"), Options())
        cuts = streaming_partitions.StreamingPartitions(scope, Options())
        with counter.counting():
            assert cuts.shortlist
        return counter()

    assert spent(192) <= GROWTH * spent(48)


def test_rows_are_not_searched_where_the_input_alone_needs_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arena holds the whole input, which is as large as any tensor: rows cannot make it smaller."""

    def search(_: streaming_partitions.StreamingPartitions) -> list[StreamPlanner]:
        raise AssertionError("cuts are searched")

    monkeypatch.setattr(streaming_partitions.StreamingPartitions, "shortlist", property(search))
    compile_graph(build("image_softmax", 24), load("cortex-m7"), Options())


def test_cuts_that_need_as_much_as_others_are_not_planned() -> None:
    """All prefixes of a chain whose calls are alike need as much: the first ones are as good as any."""
    cuts = streaming_partitions.StreamingPartitions(
        LoweringScope(build("image_softmax", 48), load("cortex-m7"), Options()), Options()
    )
    assert len(cuts._needs_of_prefixes()) == streaming_partitions.SHORTLIST_SIZE


def test_names_that_are_the_same_but_for_a_number() -> None:
    def spent(count: int) -> float:
        counter, namer = Steps(), Namer()
        namer.claim("layer")
        with counter.counting():
            names = [namer.claim("layer", suffix) for _ in range(count) for suffix in ("", "_offset")]
        assert len({*names, "layer"}) == 2 * count + 1
        return counter()

    assert spent(96) <= GROWTH * spent(24)


@contextmanager
def few_frames(count: int) -> Iterator[None]:
    """Python's recursion ends so many calls deeper than here."""
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + count)
    try:
        yield
    finally:
        sys.setrecursionlimit(old)


@pytest.mark.parametrize("name", ["activations", "far_scales", "transposed_elementwise"])
def test_deep_graphs(name: str) -> None:
    graph = build(name, 400)
    with few_frames(200):
        whole_compilation(graph, Stages())
        other_passes(graph, Stages())


@pytest.mark.slow
def test_a_chain_of_8000() -> None:
    graph = build("quantizes", 8000)
    with few_frames(200):
        whole_compilation(graph, Stages())


@pytest.mark.parametrize("name", ["exponential", pytest.param("recursion", marks=pytest.mark.exhaustive)])
def test_what_was_found(name: str) -> None:
    """Ways through a ladder doubled with each rung; a thousand nodes were too deep."""
    graph = parse((FOUND / f"{name}.mf").read_text())
    assert steps(graph).spent.total() < 20_000 * len(graph.nodes)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_have_about_as_many_nodes_as_asked_for(name: str) -> None:
    assert 40 // 5 <= len(build(name, 40).nodes) <= 40 * 1.3
