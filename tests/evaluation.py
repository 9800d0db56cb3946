"""Graphs compared by what they compute."""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.types import Array, DType, TensorType


def random_array(rng: np.random.Generator, type: TensorType) -> Array:
    """Elements over the whole range of an integer type, around zero for floats."""
    if type.dtype is DType.BOOL:
        return rng.integers(0, 2, type.shape).astype(bool)
    if type.dtype.is_float:
        return (3 * rng.standard_normal(type.shape)).astype(type.dtype.numpy)
    low, high = type.dtype.range
    return rng.integers(low, high, type.shape, endpoint=True).astype(type.dtype.numpy)


def assert_same_meaning(before: Graph, after: Graph, *, calls: int = 3, tolerance: float = 0.0) -> None:
    """Both give the same outputs, call after call.

    Args:
        tolerance: for floats, of the largest magnitude of the output; integers must be equal.
    """
    assert [v.type for v in after.inputs] == [v.type for v in before.inputs]
    assert [v.type for v in after.outputs] == [v.type for v in before.outputs]
    rng = np.random.default_rng(len(before.nodes))
    first, second = Interpreter(before), Interpreter(after)
    for _ in range(calls):
        inputs = [random_array(rng, value.type) for value in before.inputs]
        with np.errstate(all="ignore"):  # infinite padding gives infinities and NaN
            results = list(zip(first.run(*inputs), second.run(*inputs), strict=True))
        for expected, given in results:
            if expected.dtype.kind == "f" and tolerance:
                largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=1e-30))
                np.testing.assert_allclose(given, expected, rtol=0, atol=tolerance * largest)
            else:
                np.testing.assert_array_equal(given, expected)
