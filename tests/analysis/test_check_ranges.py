from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from microfold.analysis.check_ranges import check_ranges
from microfold.analysis.interval import Range
from microfold.analysis.ranges import analyze
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node
from microfold.ir.types import Array, ElementType, Tensor
from microfold.ops import accumulate
from tests.analysis.networks import networks
from tests.evaluation import random_array
from tests.kernels.graphs import conv2d_graph

thorough = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


@thorough
@given(graph=networks())
def test_claims_are_confirmed(graph: Graph) -> None:
    assert check_ranges(graph, analyze(graph)) == []


@pytest.mark.parametrize("what", ["value", "sum", "partial"])
def test_claims_that_are_too_narrow_are_found(what: str) -> None:
    graph = conv2d_graph(5, 5, 3, 4, padding=((1, 1), (1, 1)))
    ranges = analyze(graph)
    (node,) = graph.nodes
    value, sums = ranges.values[node.output], ranges.accumulators[node]
    if what == "value":
        values = {**ranges.values, node.output: Range(value.low, value.low)}
        ranges = replace(ranges, values=values)
    else:
        narrower = replace(sums, high=sums.high - 1) if what == "sum" else replace(sums, partial=sums.high)
        ranges = replace(ranges, accumulators={node: narrower})
    (fault,) = check_ranges(graph, ranges)
    assert {"value": "is claimed in", "sum": "sums of", "partial": "parts of"}[what] in fault


@thorough
@given(graph=networks())
def test_sums_of_the_reference_are_in_their_bounds(graph: Graph) -> None:
    """The accumulators that the reference requantises, each in what is claimed for its channel."""
    seen: list[Array] = []
    original = accumulate.requantize

    def spy(acc: Array, mantissas: Array, shifts: Array, out: ElementType, *, wide: bool) -> Array:
        seen.append(acc)
        return original(acc, mantissas, shifts, out, wide=wide)

    ranges = analyze(graph)

    def check(node: Node, results: tuple[Tensor, ...]) -> None:
        del results
        if node in ranges.product_sums:
            sums, rows = ranges.accumulators[node], seen[-1].reshape(-1, seen[-1].shape[-1])
            assert (rows >= sums.low).all() and (rows <= sums.high).all()
            assert (np.abs(rows) <= sums.partial).all()
        seen.clear()

    rng = np.random.default_rng(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accumulate, "requantize", spy)
        for _ in range(2):
            Interpreter(graph).run(*(random_array(rng, v.type) for v in graph.inputs), observe=check)
