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
from tests.kernels import graphs
from tests.kernels.choice import candidates_of, prefer
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


def test_few_elements_have_no_table() -> None:
    def chosen(shape: tuple[int, ...], level: str, core: str = "cortex-m4") -> str:
        return candidates_of(_softmax(shape, 0.1), core, level)[0].kernel.name

    assert chosen((1, 12), "balanced") == "s8_softmax__c_exp"
    assert chosen((1, 256), "balanced") == "s8_softmax__c"
    assert chosen((1, 256), "size") == "s8_softmax__c_exp"
    assert chosen((1, 12), "speed") == "s8_softmax__c"
    assert chosen((1, 12), "balanced", "cortex-m55") == "s8_softmax__mve_exp"
    assert chosen((1, 256), "balanced", "cortex-m55") == "s8_softmax__mve"


@pytest.mark.slow
def test_on_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, *COMPUTED)
    check_all_on_cores(
        {
            f"{scale} {out.dtype.value}": _softmax((8, 12), scale, out)
            for scale in (0.004, 0.1, 1.0)
            for out in (UNIT, WIDE_UNIT)
        }
    )
