"""Layers with many zero weights are stored by blocks, if that is smaller and not slower."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.graph import Graph
from microfold.ir.text import parse, to_text
from microfold.ir.types import Array
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.fully_connected.sparse_fully_connected import WIDTH, SparseFullyConnected, cover
from microfold.passes.context import Decision, PassContext
from microfold.transform.matmul.dense_to_sparse import DenseToSparse
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined

sparse = DenseToSparse()


def pruned(units: int, inputs: int, density: float, seed: int = 0) -> Array:
    """Weights of which whole blocks are zero."""
    rng = np.random.default_rng(seed)
    blocks = rng.random((units, -(-inputs // WIDTH))) < density
    kept = np.repeat(blocks, WIDTH, axis=1)[:, :inputs]
    return (rng.integers(-127, 128, (units, inputs)) * kept).astype(np.int8)


def layer(weights: Array, element: str = "int8{} q(0.1, 3)", zero_point: int = 0) -> Graph:
    units, inputs = weights.shape
    quant = f" q(0.5, {zero_point})" if element.startswith("int8") else ""
    values = ", ".join(str(w) if quant else f"{w}.0" for w in weights.reshape(-1).tolist())
    kind = element[: element.index("{")]
    return parse(
        f"""
        graph @g(%x: {element.format(f"[2,{inputs}]")}) -> (%y) {{
          %w = constant {kind}[{units},{inputs}]{quant} [{values}]
          %y: {element.format(f"[2,{units}]")} = fully_connected(%x, %w) | clip() {{minimum=0.0, maximum=9.0}}
        }}
        """
    )


@pytest.mark.parametrize("element", ["int8{} q(0.1, 3)", "float32{}"])
def test_a_pruned_layer(element: str) -> None:
    before = layer(pruned(8, 256, 0.1), element)
    after = sparse(before)
    (node,) = after.nodes
    assert type(node.op) is SparseFullyConnected
    assert node.epilogue == before.nodes[0].epilogue
    assert_same_meaning(before, after)
    assert sparse(after) is after
    assert parse(to_text(after)).nodes[0].op == node.op


@pytest.mark.parametrize(
    ("density", "step", "block", "reason"),
    [
        (0.95, sparse, 1, "bytes; dense weights need 1024"),
        (0.6, sparse, 1, "times as long"),
        (0.2, sparse, 4, "times as long"),
        (0.6, DenseToSparse(slowdown=3.0), 1, None),
        (0.2, DenseToSparse(slowdown=20.0), 4, None),
    ],
)
def test_the_rule(density: float, step: object, block: int, reason: str | None) -> None:
    decisions: list[Decision] = []
    graph = layer(pruned(16, 64, density))
    context = PassContext(channel_block=block, sink=decisions.append)
    after = step(graph, context)  # type: ignore[operator]
    (decision,) = decisions
    assert decision.fired == (reason is None) == (after is not graph)
    assert reason is None or reason in decision.reason


def pointwise(weights: Array, strides: int = 1, scale: float = 0.5) -> Graph:
    units, depth = weights.shape
    return parse(
        f"""
        graph @g(%x: int8[1,3,5,{depth}] q(0.1, 3)) -> (%y) {{
          %w = constant int8[{units},1,1,{depth}] q({scale}, 0) [{", ".join(map(str, weights.reshape(-1)))}]
          %b = constant int32[{units}] [{", ".join(str(i) for i in range(units))}]
          %y: int8[1,{-(-3 // strides)},{-(-5 // strides)},{units}] q(0.3, 5) = conv2d(%x, %w, %b)
            {{strides=({strides}, {strides}), dilations=(1, 1), padding=((0, 0), (0, 0))}}
            | clip() {{minimum=0.0, maximum=20.0}}
        }}
        """
    )


def test_pixels_are_rows() -> None:
    before = pointwise(pruned(8, 256, 0.05))
    after = sparse(before)
    assert [node.op.name for node in after.nodes] == ["reshape", "sparse_fully_connected", "reshape"]
    assert_same_meaning(before, after)
    assert sparse(after) is after


def test_strided_convolutions_stay() -> None:
    check_declined(sparse, to_text(pointwise(pruned(8, 256, 0.05), strides=2)))


def test_pixels_are_rows_at_all_scales() -> None:
    """Scales of layers and of convolutions give the same multipliers."""
    for step in range(30):
        before = pointwise(pruned(2, 256, 0.05), scale=0.01 + step / 1000)
        after = sparse(before)
        assert after is not before
        assert_same_meaning(before, after, calls=1)


def test_weights_with_a_zero_point() -> None:
    text = to_text(layer(pruned(8, 64, 0.1), zero_point=1))
    check_declined(sparse, text, "zero point")


def test_types_without_a_kernel() -> None:
    values = ", ".join("0" for _ in range(512))
    check_declined(
        sparse,
        f"""
        graph @g(%x: int16[1,256] q(0.1, 0)) -> (%y) {{
          %w = constant int8[2,256] q(0.5, 0) [{values}]
          %y: int16[1,2] q(0.1, 0) = fully_connected(%x, %w)
        }}
        """,
        "no kernel computes sparse layers of int16",
    )


def test_computed_weights() -> None:
    check_declined(
        sparse,
        """
        graph @g(%x: float32[1,4], %w: float32[2,4]) -> (%y) {
          %y: float32[1,2] = fully_connected(%x, %w)
        }
        """,
        "not constant",
    )


def test_dense_layers_stay() -> None:
    assert type(sparse(layer(pruned(8, 8, 1.0))).nodes[0].op) is FullyConnected


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (5, 3), (4, 4), (7, 5), (3, 64), (2, 1030)])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
def test_blocks_cover_the_matrix_once(shape: tuple[int, int], density: float) -> None:
    rng = np.random.default_rng(shape[1])
    matrix = (rng.integers(1, 128, shape) * (rng.random(shape) < density)).astype(np.int8)
    blocks = cover(matrix)
    total = np.zeros(shape, np.int64)
    for unit, column, weights in zip(*blocks, strict=True):
        total[unit, column : column + weights.size] += weights
    assert np.array_equal(total, matrix)
    order = list(zip(blocks.units.tolist(), blocks.columns.tolist(), strict=True))
    assert order == sorted(set(order))
    assert np.any(blocks.weights != 0, axis=1).all()
