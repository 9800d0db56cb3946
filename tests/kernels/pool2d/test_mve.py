"""Pooling for Helium, on the simulated core, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.types import DType
from microfold.kernels.pool2d.mve import LARGEST_COUNT
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from tests.kernels import graphs
from tests.kernels.cores import check_all
from tests.needs import CROSS_TOOLS
from tests.sampling import quick

pytestmark = pytest.mark.needs(*CROSS_TOOLS)

SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "global": ((1, 25, 5, 12), {"size": (25, 5), "strides": (1, 1), "padding": graphs.NO_PADDING}),
    "255 elements": ((1, 17, 15, 9), {"size": (17, 15), "strides": (1, 1), "padding": graphs.NO_PADDING}),
    "300 elements": ((1, 25, 12, 7), {"size": (25, 12), "strides": (1, 1), "padding": graphs.NO_PADDING}),
    "1x1 strided": ((1, 5, 4, 20), {"size": (1, 1), "strides": (2, 2), "padding": graphs.NO_PADDING}),
    "2x2": ((2, 8, 7, 33), {"size": (2, 2), "strides": (2, 2), "padding": graphs.NO_PADDING}),
    "3x3 padded": ((1, 7, 6, 19), {"size": (3, 3), "strides": (2, 1), "padding": ((1, 1), (1, 2))}),
}


@pytest.mark.always
@pytest.mark.parametrize("op", quick([MaxPool2D, AveragePool2D]))
def test_equals_the_reference(op: type[AveragePool2D | MaxPool2D]) -> None:
    kind = {MaxPool2D: "max", AveragePool2D: "average"}[op]
    cases = [
        graphs.one_node_graph(op(**options), [graphs.int8_input("x", shape)], {}, activation)
        for shape, options in SHAPES.values()
        for activation in (None, graphs.RELU6)
    ]
    check_all(cases, "cortex-m55", {f"s8_{kind}_pool2d__mve"}, runs=8)


def test_leaves_very_large_windows_to_other_kernels() -> None:
    op = AveragePool2D((64, 64), (1, 1), graphs.NO_PADDING)
    graph = graphs.one_node_graph(op, [graphs.int8_input("x", (1, 64, 64, 4))], {})
    program = compile_graph(graph, target.load("cortex-m55"))
    assert not program.layers[0].kernel.name.endswith("__mve")


@pytest.mark.parametrize("dtype", LARGEST_COUNT)
def test_division_by_multiplication_is_exact(dtype: DType) -> None:
    """The product is too large by less than 1 / count: it matters most just below multiples of the count."""
    count = np.arange(1, LARGEST_COUNT[dtype] + 1, dtype=object)
    reciprocal = 2**31 // count + 1
    largest = -dtype.range[0] * count + count // 2
    for numerator in (largest, largest // count * count - 1):
        assert np.all(2 * numerator * reciprocal // 2**32 == numerator // count)
        assert np.all(2 * numerator < 2**32)
