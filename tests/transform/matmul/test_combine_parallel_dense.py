"""Fully connected layers of one input become one, where their units make whole blocks."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.passes.context import PassContext
from microfold.transform.matmul.combine_parallel_dense import CombineParallelDense
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

always = CombineParallelDense(slice=0.0, slice_row=0.0)
combine = CombineParallelDense()


def test_weights_and_biases() -> None:
    check_rewrite(
        always,
        """
        graph @g(%x: int8[2,2] q(0.1, 3)) -> (%a, %z) {
          %v = constant int8[1,2] q(0.5, 7) [1, 2]
          %b = constant int32[1] [10]
          %a: int8[2,1] q(0.2, -5) = fully_connected(%x, %v, %b)
          %w = constant int8[2,2] q(0.5, 7) [3, 4, 5, 6]
          %z: int8[2,2] q(0.2, -5) = fully_connected(%x, %w)
        }
        """,
        """
        graph @g(%x: int8[2,2] q(0.1, 3)) -> (%a, %z) {
          %a_combined_weights = constant int8[3,2] q(0.5, 7) [1, 2, 3, 4, 5, 6]
          %a_combined_bias = constant int32[3] [10, 0, 0]
          %a_combined: int8[2,3] q(0.2, -5) = fully_connected(%x, %a_combined_weights, %a_combined_bias)
          %a: int8[2,1] q(0.2, -5) = strided_slice(%a_combined) {begin=(0, 0), size=(2, 1), strides=(1, 1)}
          %z: int8[2,2] q(0.2, -5) = strided_slice(%a_combined) {begin=(0, 1), size=(2, 2), strides=(1, 1)}
        }
        """,
    )


def test_inputs_through_reshapes() -> None:
    check_rewrite(
        always,
        """
        graph @g(%x: float32[1,2,2]) -> (%a, %z) {
          %r: float32[2,2] = reshape(%x) {shape=(2, 2)}
          %v = constant float32[1,2] [1.0, 2.0]
          %a: float32[2,1] = fully_connected(%r, %v)
          %s: float32[4] = reshape(%x) {shape=(4,)}
          %t: float32[2,2] = reshape(%s) {shape=(2, 2)}
          %w = constant float32[2,2] [3.0, 4.0, 5.0, 6.0]
          %z: float32[2,2] = fully_connected(%t, %w)
        }
        """,
        """
        graph @g(%x: float32[1,2,2]) -> (%a, %z) {
          %r: float32[2,2] = reshape(%x) {shape=(2, 2)}
          %a_combined_weights = constant float32[3,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
          %a_combined: float32[2,3] = fully_connected(%r, %a_combined_weights)
          %a: float32[2,1] = strided_slice(%a_combined) {begin=(0, 0), size=(2, 1), strides=(1, 1)}
          %z: float32[2,2] = strided_slice(%a_combined) {begin=(0, 1), size=(2, 2), strides=(1, 1)}
        }
        """,
    )
    # Other rows of the same elements are other inputs.
    check_declined(
        always,
        """
        graph @g(%x: float32[4,2]) -> (%a, %z) {
          %v = constant float32[1,2] [1.0, 2.0]
          %a: float32[4,1] = fully_connected(%x, %v)
          %t: float32[2,4] = reshape(%x) {shape=(2, 4)}
          %w = constant float32[1,4] [3.0, 4.0, 5.0, 6.0]
          %z: float32[2,1] = fully_connected(%t, %w)
        }
        """,
    )


def layers(units: tuple[int, ...], scales: tuple[float, ...], rows: int = 1, inputs: int = 64) -> Graph:
    rng = np.random.default_rng(0)
    x = Value("x", TensorType(DType.INT8, (rows, inputs), Quant.per_tensor(0.1, 3)))
    nodes, constants = [], {}
    for count, scale in zip(units, scales, strict=True):
        w = Value("w", TensorType(DType.INT8, (count, inputs), Quant.per_tensor(scale)))
        constants[w] = rng.integers(-127, 128, (count, inputs)).astype(np.int8)
        out = ElementType(DType.INT8, Quant.per_tensor(0.7, -5))
        nodes.append(make_node(FullyConnected(out), [x, w], ["y"]))
    return Graph("g", (x,), tuple(node.output for node in nodes), tuple(nodes), constants)


@pytest.mark.parametrize(
    ("units", "pays"), [((3, 5), True), ((1, 1), True), ((10, 10), False), ((16, 16, 16), False)]
)
def test_the_rule(units: tuple[int, ...], pays: bool) -> None:
    graph = layers(units, (0.01,) * len(units))
    decisions = []
    after = combine(graph, PassContext(sink=decisions.append))
    assert (after is not graph) == pays
    assert [d.fired for d in decisions] == [pays]
    assert_same_meaning(graph, after)
    assert combine(after) is after


def test_scales_do_not_matter() -> None:
    """A scale of a whole layer and one for each channel give the same multipliers: all pairs are combined."""
    for step in range(40):
        graph = layers((3, 5), (0.01, 0.0101 + step / 1e4))
        after = combine(graph)
        assert after is not graph
        assert_same_meaning(graph, after, calls=1)


def test_different_zero_points() -> None:
    check_declined(
        always,
        """
        graph @g(%x: int8[2,2] q(0.1, 3)) -> (%a, %z) {
          %v = constant int8[1,2] q(0.5, 7) [1, 2]
          %w = constant int8[1,2] q(0.5, 0) [3, 4]
          %a: int8[2,1] q(0.2, -5) = fully_connected(%x, %v)
          %z: int8[2,1] q(0.2, -5) = fully_connected(%x, %w)
        }
        """,
        "zero point",
    )


def test_sums_of_two_widths_stay_apart() -> None:
    """An absent bias of int16 means 64 bits; zeros of int32 would make them 32."""
    check_declined(
        always,
        """
        graph @g(%x: int16[2,2] q(0.1, 0)) -> (%a, %z) {
          %v = constant int8[1,2] q(0.5, 0) [1, 2]
          %w = constant int8[1,2] q(0.5, 0) [3, 4]
          %b = constant int32[1] [7]
          %a: int16[2,1] q(0.2, 0) = fully_connected(%x, %v)
          %z: int16[2,1] q(0.2, 0) = fully_connected(%x, %w, %b)
        }
        """,
        "wrap at 32 bits",
    )
