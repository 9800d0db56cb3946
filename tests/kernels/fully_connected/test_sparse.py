"""Fully connected layers stored by blocks."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import make_node
from microfold.ir.types import Array
from microfold.kernels.fully_connected.sparse import pack_blocks, unpack_blocks
from microfold.ops.fully_connected.sparse_fully_connected import SparseFullyConnected
from tests.kernels import graphs
from tests.kernels.cores import assert_chosen, assert_exact, compile_all
from tests.kernels.portable import as_float, check_on_cores
from tests.needs import CROSS_TOOLS, need_tools

SHAPES = {
    "wide": (40, 7),
    "odd": (13, 5),
    "three inputs": (3, 4),
    "one input": (1, 3),
    "far apart": (700, 3),
}


def prune(graph: Graph, density: float) -> Graph:
    """The layer with most weights zero, as a sparse one."""
    rng = np.random.default_rng(1)
    node = graph.nodes[0]
    weights = node.operands[1]
    array = graph.constants[weights]
    kept = (array * (rng.random(array.shape) < density)).astype(array.dtype)
    op = SparseFullyConnected(node.op.out)  # type: ignore[attr-defined]
    new = make_node(op, node.inputs, ["out"], node.epilogue)
    return replace(
        graph, nodes=(new,), outputs=new.outputs, constants=dict(graph.constants) | {weights: kept}
    )


def layer(name: str, density: float, floating: bool = False) -> Graph:
    inputs, units = SHAPES[name]
    dense = graphs.fully_connected_graph(inputs, units, batch=2, activation=graphs.RELU6)
    return prune(as_float(dense) if floating else dense, density)


@pytest.mark.parametrize("density", [0.0, 0.04, 0.3, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_packing(shape: str, density: float) -> None:
    graph = layer(shape, density)
    matrix: Array = graph.constants[graph.nodes[0].operands[1]]
    weights, steps, counts = pack_blocks(matrix)
    assert counts.sum() == len(weights) == len(steps)
    assert np.array_equal(unpack_blocks(weights, steps, counts, matrix.shape[1]), matrix)


def test_long_steps() -> None:
    matrix = np.zeros((3, 1100), np.int8)
    matrix[0, [255, 511, 770]] = 1, 2, 3  # steps of 255, 256, 259
    matrix[2, [0, 1099]] = 4, 5
    weights, steps, counts = pack_blocks(matrix)
    assert steps.tolist() == [255, 255, 1, 255, 4, 0, 255, 255, 255, 255, 76]
    assert counts.tolist() == [5, 0, 6]
    assert np.array_equal(unpack_blocks(weights, steps, counts, 1100), matrix)


@pytest.mark.parametrize("floating", [False, True], ids=["int8", "float"])
def test_host(floating: bool) -> None:
    cases = {shape: layer(shape, 0.2, floating) for shape in SHAPES}
    program, layers = compile_all(cases, target.load("host"))
    assert all("sparse" in layer.kernel.name for layer in layers.values())
    assert_exact(program, 4)


def test_a_matrix_of_zeros() -> None:
    assert_exact(compile_graph(layer("odd", 0.0), target.load("host")), 2)


@pytest.mark.slow
@pytest.mark.always
def test_dsp() -> None:
    need_tools(*CROSS_TOOLS)
    cases = {shape: layer(shape, 0.2) for shape in ("wide", "far apart")}
    program, layers = compile_all(cases, target.load("cortex-m4"))
    assert_chosen(layers, "s8_sparse_fully_connected__dsp_1x4")
    assert_exact(program, 3)


@pytest.mark.slow
@pytest.mark.always
def test_portable_cores() -> None:
    need_tools(*CROSS_TOOLS)
    check_on_cores(layer("odd", 0.3), runs=2)
