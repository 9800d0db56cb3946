"""Elementwise kernels of two int8 operands for Helium."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import avoid
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools

HALVES = (0.07, 0.043, 0.11)  # no linear form gives the reference's sums
SHAPES = (
    ((256, 1), (1, 256)),  # all pairs
    ((3, 4, 7), (3, 4, 7)),
    ((5, 12), (5, 1)),
    ((3,), (2, 3, 3)),
)


def _graph(
    op: type[Add | Mul | Sub | SquaredDifference],
    scales: tuple[float, float, float],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    activation: Clip | None = None,
    zero_points: tuple[int, int] = (4, -90),
) -> Graph:
    operands = [
        graphs.int8_input(n, shape, s, z)
        for n, shape, s, z in zip("ab", shapes, scales, zero_points, strict=False)
    ]
    return graphs.one_node_graph(op(graphs.int8_element(scales[2], -11)), operands, {}, activation)


@pytest.mark.slow
@pytest.mark.always
def test_equals_the_reference() -> None:
    need_tools(*CROSS_TOOLS)
    cases = [_graph(op, HALVES, shapes) for op in (Add, Sub) for shapes in SHAPES]
    cases += [_graph(SquaredDifference, (0.0313, 0.0471, 0.3), shapes) for shapes in SHAPES]
    cases += [_graph(Mul, (0.0313, 0.0471, 0.03), shapes) for shapes in SHAPES]
    cases += [
        _graph(Mul, (0.0313, 0.0471, 0.03), SHAPES[0], graphs.RELU),
        _graph(Mul, (0.0313, 0.0471, 0.03), SHAPES[0], zero_points=(-128, -128)),
        _graph(Mul, (0.9, 0.7, 0.7), SHAPES[0]),  # no second rounding
    ]
    with pytest.MonkeyPatch.context() as patch:
        avoid(patch, lambda kernel: "__mve" not in kernel.name)
        program = compile_graph(merge(cases), target.load("cortex-m55"))
    names = [layer.kernel.name for layer in program.layers]
    assert all("__mve" in name for name in names), names
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference


def test_leaves_multipliers_of_one_and_more_to_others() -> None:
    graph = _graph(Mul, (0.9, 1.5, 0.7), SHAPES[0])
    program = compile_graph(graph, target.load("cortex-m55"))
    assert program.layers[0].kernel.name != "s8_mul__mve"


@pytest.mark.slow
@pytest.mark.figures
def test_cost() -> None:
    need_tools(*CROSS_TOOLS)
    shapes = (((6, 8, 16), (6, 8, 16)), ((6, 8, 16), (16,)), ((6, 8, 16), (6, 8, 1)))
    cases = [_graph(op, (0.0313, 0.0471, 0.3), s) for op in (Add, Mul, SquaredDifference) for s in shapes]
    program = compile_graph(merge(cases), target.load("cortex-m55"))
    for name, estimated, counted in measured(program):
        assert abs(estimated / counted - 1) < 0.15, (name, estimated, counted)
