"""Pooling for cores with DSP instructions, on the simulated core, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from tests.kernels import graphs
from tests.kernels.cores import check_all
from tests.needs import CROSS_TOOLS
from tests.sampling import quick

pytestmark = pytest.mark.needs(*CROSS_TOOLS)

SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "global": ((1, 25, 5, 12), {"size": (25, 5), "strides": (1, 1), "padding": graphs.NO_PADDING}),
    "256 elements": ((1, 16, 16, 4), {"size": (16, 16), "strides": (16, 16), "padding": graphs.NO_PADDING}),
    "rows of 18": ((1, 2, 40, 8), {"size": (1, 18), "strides": (1, 11), "padding": graphs.NO_PADDING}),
    "rows of 19": ((1, 3, 20, 6), {"size": (2, 19), "strides": (1, 1), "padding": graphs.NO_PADDING}),
    "2x2": ((2, 8, 7, 7), {"size": (2, 2), "strides": (2, 2), "padding": graphs.NO_PADDING}),
    "3x3 padded": ((1, 7, 6, 5), {"size": (3, 3), "strides": (2, 1), "padding": ((1, 1), (1, 2))}),
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
    check_all(cases, "cortex-m4", {f"s8_{kind}_pool2d__dsp"}, runs=8)


@pytest.mark.parametrize(("shape", "size"), [((1, 20, 20, 4), (20, 20)), ((1, 4, 4, 3), (2, 2))])
def test_leaves_the_rest_to_other_kernels(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    op = AveragePool2D(size, (1, 1), graphs.NO_PADDING)
    program = compile_graph(
        graphs.one_node_graph(op, [graphs.int8_input("x", shape)], {}), target.load("cortex-m4")
    )
    assert program.layers[0].kernel.name == "s8_average_pool2d__c"
