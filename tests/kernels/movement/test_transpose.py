"""Transposition of bytes by words and by vectors."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.types import DType, TensorType
from microfold.kernels.movement.transpose import Planes, find_planes
from microfold.ops.movement.transpose import Transpose
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

KERNEL = {
    "cortex-m3": "transpose__c_words_4x4",
    "cortex-m4": "transpose__c_words_4x4",
    "cortex-m55": "transpose__mve_8",
}


@pytest.mark.parametrize(
    ("shape", "permutation", "planes"),
    [
        ((5, 7), (1, 0), Planes((), 5, 7, 7, 5)),
        ((2, 4, 5, 8), (0, 3, 1, 2), Planes(((2, 160, 160),), 20, 8, 8, 20)),
        ((2, 8, 4, 5), (0, 2, 3, 1), Planes(((2, 160, 160),), 8, 20, 20, 8)),
        ((4, 5, 6), (2, 1, 0), Planes(((5, 6, 4),), 4, 6, 30, 20)),
        ((4, 5, 6), (1, 0, 2), None),
        ((1, 5, 1, 6), (2, 1, 0, 3), None),
    ],
)
def test_planes(shape: tuple[int, ...], permutation: tuple[int, ...], planes: Planes | None) -> None:
    assert find_planes(TensorType(DType.INT8, shape), permutation) == planes


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", KERNEL)
def test_equals_the_reference(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    cases = [
        ((4, 5), (1, 0)),
        ((9, 4), (1, 0)),
        ((2, 3, 6, 9), (0, 3, 1, 2)),
        ((3, 17, 7), (2, 0, 1)),
        ((4, 5, 3, 7), (3, 2, 1, 0)),
        ((9, 43), (1, 0)),
    ]
    nodes = [graphs.one_node_graph(Transpose(p), [graphs.int8_input("x", shape)], {}) for shape, p in cases]
    program = compile_graph(merge(nodes), target.load(core))
    assert KERNEL[core] in {layer.kernel.name for layer in program.layers} <= set(KERNEL.values())
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 4))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", sampled(KERNEL, 2))
def test_cost(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    cases = [((1, 12, 12, 16), (0, 3, 1, 2)), ((1, 16, 12, 12), (0, 2, 3, 1)), ((2, 31, 33), (0, 2, 1))]
    nodes = [graphs.one_node_graph(Transpose(p), [graphs.int8_input("x", shape)], {}) for shape, p in cases]
    for name, estimated, counted in measured(compile_graph(merge(nodes), target.load(core))):
        assert abs(estimated / counted - 1) < 0.15, (name, estimated, counted)
