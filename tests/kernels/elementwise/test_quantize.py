"""Quantised floats: halves are rounded away from zero, and nothing next to them is."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.host.session import Session
from microfold.ir.types import DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.conversions.quantize import Quantize
from tests.kernels.graphs import float_input, one_node_graph


def _around_halves(largest: int) -> np.ndarray:
    """Halves up to some steps, the floats next to them, and what is far off or no number."""
    halves = (np.arange(-largest, largest) + 0.5).astype(np.float32)
    below, above = (np.nextafter(halves, np.float32(end)) for end in (-np.inf, np.inf))
    ends = np.array([0.0, -0.0, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-40], np.float32)
    return np.concatenate([halves, below, above, halves.round(), ends]).astype(np.float32)


@pytest.mark.parametrize(
    ("dtype", "zero_point"), [(DType.INT8, -5), (DType.INT8, 127), (DType.UINT8, 3), (DType.INT16, 0)]
)
def test_halves(dtype: DType, zero_point: int) -> None:
    values = _around_halves(33_000)
    out = ElementType(dtype, Quant.per_tensor(1.0, zero_point))
    graph = one_node_graph(Quantize(out), [float_input("x", values.shape)], {})
    (found,) = Session(compile_graph(graph, target.load("host"))).run(values)
    with np.errstate(all="ignore"):
        wanted = Quantize(out).reference(Tensor(TensorType(DType.FLOAT32, values.shape), values))
    np.testing.assert_array_equal(found, wanted)
