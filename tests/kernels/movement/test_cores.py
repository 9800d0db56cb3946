"""Movement on cores, which copy bytes in their own way."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools

# Runs that begin at addresses of every alignment, shorter and longer than what is copied at once.
CASES = (
    graphs.one_node_graph(
        StridedSlice((0, 1, 3), (1, 4, 18), (1, 1, 1)), [graphs.int8_input("x", (1, 6, 41))], {}
    ),
    graphs.one_node_graph(
        StridedSlice((0, 4, 0), (1, 5, 36), (1, 1, 1)), [graphs.int8_input("x", (1, 9, 36))], {}
    ),
    graphs.one_node_graph(
        Pad(((0, 0), (1, 2), (1, 1), (0, 0)), -3), [graphs.int8_input("x", (1, 4, 5, 7))], {}
    ),
    graphs.one_node_graph(
        Concatenate(2), [graphs.int8_input(f"x{n}", (2, 3, n)) for n in (16, 5, 33, 2)], {}
    ),
    graphs.one_node_graph(Transpose((0, 3, 1, 2)), [graphs.int8_input("x", (2, 3, 4, 5))], {}),
    graphs.one_node_graph(Transpose((1, 0, 2)), [graphs.int8_input("x", (3, 5, 9))], {}),
)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
def test_equals_the_reference(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    program = compile_graph(merge(list(CASES)), target.load(core))
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 4))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
def test_cost(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    shape = (1, 12, 12, 16)
    x = [graphs.int8_input("x", shape)]
    cases = [
        graphs.one_node_graph(Transpose((0, 3, 1, 2)), x, {}),
        graphs.one_node_graph(StridedSlice((0, 1, 0, 0), (1, 10, 12, 16), (1, 1, 1, 1)), x, {}),
        graphs.one_node_graph(Concatenate(3), [*x, graphs.int8_input("y", shape)], {}),
    ]
    for name, estimated, counted in measured(compile_graph(merge(cases), target.load(core))):
        assert abs(estimated / counted - 1) < 0.2, (name, estimated, counted)
