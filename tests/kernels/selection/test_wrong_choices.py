"""Layers of whose shapes selection once took a kernel that needs more cycles than another one it had."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import Candidate, candidates
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.random_networks import merge

SAME = ((1, 1), (1, 1))


def considered(graph: Graph, operator: str, core: str) -> dict[str, Candidate]:
    """By name, the kernels that the first layer with an operator can have."""
    node = next(node for node in graph.nodes if node.op.name == operator)
    layer = LayerContext(node, graph.constants, target.load(core))
    return {each.kernel.name: each for each in candidates(layer) if each.cost is not None}


def chosen(graph: Graph, operator: str, core: str) -> set[str]:
    """The kernels that all layers with an operator get where only time counts."""
    program = compile_graph(graph, target.load(core), Options(optimize="speed"))
    return {layer.kernel.name for layer in program.layers if layer.node.op.name == operator}


def cost(candidate: Candidate) -> float:
    assert candidate.cost is not None
    return candidate.cost


@pytest.mark.parametrize("core", ["cortex-m7", "cortex-m33"])
@pytest.mark.parametrize("shape", [(25, 5, 64), (20, 6, 48)])
def test_rows_not_planes(core: str, shape: tuple[int, int, int]) -> None:
    """Depthwise layers like those of keyword spotting, in a network whose other weights take most flash."""
    image = graphs.depthwise_conv2d_graph(*shape, padding=SAME, activation=graphs.RELU)
    graph = merge([image, graphs.fully_connected_graph(640, 96)])
    found = considered(graph, "depthwise_conv2d", core)
    row, plane = (found[f"s8_depthwise_conv2d__dsp_{name}"] for name in ("row", "plane"))
    assert cost(row) < cost(plane)
    assert chosen(graph, "depthwise_conv2d", core) == {row.kernel.name}


@pytest.mark.parametrize(("length", "channels", "taps"), [(30, 40, 3), (28, 128, 5), (24, 128, 10)])
def test_helium_computes_signals(length: int, channels: int, taps: int) -> None:
    """Depthwise layers over time: what has the least cost of its own, which no kernel without vectors has."""
    graph = graphs.depthwise_conv2d_graph(length, 1, channels, (taps, 1))
    found = considered(graph, "depthwise_conv2d", "cortex-m55")
    (name,) = chosen(graph, "depthwise_conv2d", "cortex-m55")
    assert "__mve" in name
    assert cost(found[name]) == min(map(cost, found.values()))
    assert all(cost(each) > cost(found[name]) for other, each in found.items() if "__mve" not in other)


@pytest.mark.parametrize(("depth", "units"), [(640, 128), (128, 128), (200, 96)])
def test_pairs_of_units_for_their_cycles(depth: int, units: int) -> None:
    """Dense layers on M3: no kernel takes fewer cycles than sums of two units in a word."""
    graph = graphs.fully_connected_graph(depth, units, largest=60)
    found = considered(graph, "fully_connected", "cortex-m3")
    pairs = found["s8_fully_connected__thumb2_pairs"]
    assert cost(pairs) == min(map(cost, found.values()))
    assert len(found) > 1
    assert chosen(graph, "fully_connected", "cortex-m3") == {pairs.kernel.name}
