"""The largest elements, in order."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import DType, Tensor, TensorType
from microfold.ops.reduce.top_k import TopK
from tests.kernels.portable import check
from tests.kernels.random_networks import merge


def test_the_first_of_equal_ones_comes_first() -> None:
    x = np.array([[3, 7, 7, -1, 3], [-5, -5, -5, -5, -5]], np.int8)
    values, indices = TopK(3, DType.INT32).evaluate([Tensor(TensorType(DType.INT8, x.shape), x)])
    assert values.data.tolist() == [[7, 7, 3], [-5, -5, -5]]
    assert indices.data.tolist() == [[1, 2, 0], [0, 1, 2]]


def test_any_count_of_any_type() -> None:
    """Of bytes in rows of 300, many are equal."""
    graphs: list[Graph] = []
    for dtype in (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32):
        index = DType.INT16 if dtype is DType.INT16 else DType.INT32
        for count, depth in ((1, 1), (5, 300), (8, 8)):
            x = Value(f"x_{dtype.value}_{depth}", TensorType(dtype, (2, depth)))
            names = [f"{x.name}_{what}" for what in ("largest", "places")]
            node = make_node(TopK(count, index), [x], names)
            graphs.append(Graph("net", (x,), node.outputs, (node,)))
    check(merge(graphs))


@pytest.mark.parametrize("count", [0, 6])
def test_a_count_out_of_range(count: int) -> None:
    with pytest.raises(TypeRuleError, match=rf"the count must be in \[1, 5\], .* it is {count}"):
        TopK(count, DType.INT32).infer_all([TensorType(DType.INT8, (2, 5))])
