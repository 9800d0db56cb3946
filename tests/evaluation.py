"""Graphs compared by what they compute."""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.control.control_flow import While

MOST_TURNS = 20


def random_array(rng: np.random.Generator, type: TensorType, limit: int | None = None) -> Array:
    """Elements over the whole range of an integer type, around zero for floats.

    Args:
        limit: the largest magnitude of integers of 32 bits and more.
    """
    if type.dtype is DType.BOOL:
        return rng.integers(0, 2, type.shape).astype(bool)
    if type.dtype.is_float:
        return (3 * rng.standard_normal(type.shape)).astype(type.dtype.numpy)
    low, high = type.dtype.range
    if limit is not None and type.dtype in (DType.INT32, DType.INT64):
        low, high = max(low, -limit), min(high, limit)
    return rng.integers(low, high, type.shape, endpoint=True).astype(type.dtype.numpy)


def has_loop(graph: Graph) -> bool:
    """Whether the graph, or a subgraph, repeats something as often as a value says."""
    return any(isinstance(node.op, While) for node in graph.nodes) or any(
        has_loop(body) for body in graph.subgraphs.values()
    )


def assert_same_meaning(
    before: Graph, after: Graph, *, calls: int = 3, tolerance: float = 0.0, may_cancel: bool = False
) -> None:
    """Both give the same outputs, call after call.

    Args:
        tolerance: for floats, of the largest magnitude of the output; integers must be equal.
        may_cancel: outputs may be small differences of large values, whose rounding errors they then have:
            the tolerance is of the largest magnitude on the way.
    """
    assert [v.type for v in after.inputs] == [v.type for v in before.inputs]
    assert [v.type for v in after.outputs] == [v.type for v in before.outputs]
    rng = np.random.default_rng(len(before.nodes))
    limit = MOST_TURNS if has_loop(before) else None  # an int32 input may say how often
    first, second = Interpreter(before), Interpreter(after)
    on_the_way: list[float] = []

    def observe(_: Node, results: tuple[Tensor, ...]) -> None:
        if may_cancel:
            on_the_way.extend(_largest(result.data) for result in results if result.type.dtype.is_float)

    for _ in range(calls):
        inputs = [random_array(rng, value.type, limit) for value in before.inputs]
        with np.errstate(all="ignore"):  # infinite padding gives infinities and NaN
            results = list(zip(first.run(*inputs, observe=observe), second.run(*inputs), strict=True))
        for expected, given in results:
            if expected.dtype.kind == "f" and tolerance:
                largest = max([_largest(expected), *on_the_way])
                np.testing.assert_allclose(given, expected, rtol=0, atol=tolerance * largest)
            else:
                np.testing.assert_array_equal(given, expected)


def _largest(array: Array) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=1e-30))
