"""Means and sums over pixels by words and by vectors."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.types import DType, ElementType, Quant
from microfold.ops.reduce.mean import Mean, Sum
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools

KERNELS = {"cortex-m4": "words_4", "cortex-m55": "mve_4"}
WIDE = ElementType(DType.INT8, Quant.per_tensor(0.5, -9))


def _mean(shape: tuple[int, ...], axes: tuple[int, ...], keep_dims: bool = False) -> Graph:
    op = Mean(axes, keep_dims, graphs.int8_element())
    return graphs.one_node_graph(op, [graphs.int8_input("x", shape)], {})


CASES = (
    _mean((1, 3, 5, 8), (1, 2)),
    _mean((2, 4, 1, 7), (1, 2), keep_dims=True),
    # More addends than 16 bits hold.
    _mean((1, 19, 27, 5), (1, 2)),
    _mean((6, 4), (0,)),
    graphs.one_node_graph(Sum((1,), False, WIDE), [graphs.int8_input("x", (3, 30, 9))], {}, graphs.RELU6),
)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", KERNELS)
def test_equals_the_reference(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    program = compile_graph(merge(list(CASES)), target.load(core))
    assert all(KERNELS[core] in layer.kernel.name for layer in program.layers)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 6))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", KERNELS)
def test_cost(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    cases = [_mean((1, 7, 7, 64), (1, 2)), _mean((1, 19, 27, 9), (1, 2)), _mean((4, 16, 16), (1,))]
    for name, estimated, counted in measured(compile_graph(merge(cases), target.load(core))):
        assert abs(estimated / counted - 1) < 0.2, (name, estimated, counted)


def test_others_stay_portable() -> None:
    core = target.load("cortex-m4")
    for graph in (_mean((1, 3, 5, 3), (1, 2)), _mean((1, 3, 5, 8), (3,)), _mean((3, 4, 5, 8), (0, 2))):
        assert compile_graph(graph, core).layers[0].kernel.name == "mean__c"
