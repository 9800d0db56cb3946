"""Softmax of int8 without a table: every difference, with exponentials that are computed."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor
from microfold.ops.normalize.softmax import Softmax
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.portable import check_all_on_cores
from tests.kernels.random_networks import merge

UNIT = ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128))
WIDE_UNIT = ElementType(DType.INT16, Quant.per_tensor(1 / 65536, -32768))
COMPUTED = {"s8_softmax__c_exp", "s8_s16_softmax__c_exp"}


def _softmax(shape: tuple[int, ...], scale: float, out: ElementType = UNIT, beta: float = 1.0) -> Graph:
    return graphs.one_node_graph(Softmax(beta, out), [graphs.int8_input("x", shape, scale)], {})


def _every_difference() -> Array:
    """Rows of two elements, int8 [256, 2]: the largest value and each other one."""
    return np.stack([np.full(256, 127), np.arange(-128, 128)], axis=1).astype(np.int8)


def test_every_difference_of_many_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, *COMPUTED)
    rng = np.random.default_rng(5)
    # The smallest and the largest shifts, and scales around those of logits.
    scales = [2.0**-25, 1e-6, 15.99, 16.0, 31.0, 200.0, *np.exp(rng.uniform(-9, 3, 24)).tolist()]
    cases = [
        _softmax((256, 2), scale, out, beta)
        for scale in scales
        for out in (UNIT, WIDE_UNIT)
        for beta in ((1.0, 0.3) if scale > 1e-3 else (1.0,))
    ]
    program = compile_graph(merge(cases), target.load("host"))
    assert {layer.kernel.name for layer in program.layers} == COMPUTED
    x = _every_difference()
    for found, graph in zip(Session(program).run(*[x] * len(cases)), cases, strict=True):
        (node,) = graph.nodes
        operand = node.operands[0].type
        assert isinstance(node.op, Softmax)
        assert np.array_equal(found, node.op.reference(Tensor(operand, x))), (operand.quant, node.op)


def _chosen(graph: Graph, core: str, level: str) -> str:
    """The kernel of its only softmax."""
    program = compile_graph(graph, target.load(core), Options(optimize=level))
    (name,) = (la.kernel.name for la in program.layers if isinstance(la.node.op, Softmax))
    return name


def _behind_convolution(graph: Graph, pixels: int) -> Graph:
    """With another layer beside it that takes time."""
    return merge([graphs.conv2d_graph(pixels, pixels, 16, 16, padding=((1, 1), (1, 1))), graph])


@pytest.mark.parametrize(
    ("core", "table"),
    [
        ("cortex-m4", "s8_softmax__c"),
        ("cortex-m3", "s8_softmax__c"),
        ("cortex-m0plus", "s8_softmax__c"),
        ("cortex-m55", "s8_softmax__mve"),
    ],
)
def test_a_small_part_of_the_time_has_no_table(core: str, table: str) -> None:
    graph = _softmax((1, 12), 0.1)
    assert _chosen(_behind_convolution(graph, 48), core, "balanced") in COMPUTED
    assert _chosen(_behind_convolution(graph, 48), core, "speed") == table


@pytest.mark.slow
@pytest.mark.always
def test_on_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, *COMPUTED)
    check_all_on_cores(
        {
            f"{scale} {out.dtype.value}": _softmax((8, 12), scale, out)
            for scale in (0.004, 0.1, 1.0)
            for out in (UNIT, WIDE_UNIT)
        }
    )
