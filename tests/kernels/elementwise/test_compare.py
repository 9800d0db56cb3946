"""Comparisons of int8: every pair of numbers, in each form that a kernel has."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value, make_node
from microfold.ir.types import DType, Quant, TensorType
from microfold.ops.elementwise.compare import RELATIONS, Compare
from microfold.options import Options
from tests.kernels.portable import check_on_cores
from tests.kernels.random_networks import merge

EVERY = np.arange(-128, 128, dtype=np.int8)
# Scales and zero points of both operands. Of the last ones, 256 times the scale is less than a step.
ALIKE = ((0.05, -3), (0.05, -3))
OTHERS = ((0.05, -3), (0.07, 11))
FAR = ((0.5, 100), (0.004, -100))
EQUAL = ((0.001, 0), (0.0013, 5))
EQUAL_ALIKE = (EQUAL[0], EQUAL[0])


def graph(relation: str, quants: tuple[tuple[float, int], ...], constant: int | None = None) -> Graph:
    """All numbers of the first operand with all of the second one, or with one number."""
    first, second = (
        Value(name, TensorType(DType.INT8, shape, Quant.per_tensor(*quant)))
        for name, shape, quant in zip(
            "ab", ((256, 1), (1, 256 if constant is None else 1)), quants, strict=True
        )
    )
    node = make_node(Compare(relation), [first, second], ["y"])
    if constant is None:
        return Graph("net", (first, second), node.outputs, (node,), {})
    return Graph("net", (first,), node.outputs, (node,), {second: np.array([[constant]], np.int8)})


CASES = [
    (ALIKE, Options(), "s8_compare__c_alike"),
    (OTHERS, Options(), "s8_compare__c_limits"),
    (FAR, Options(), "s8_compare__c_limits"),
    (OTHERS, Options(kernels=("compare=s8_compare__c",)), "s8_compare__c"),
]


@pytest.mark.parametrize(("quants", "options", "kernel"), CASES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_pair(
    relation: str, quants: tuple[tuple[float, int], ...], options: Options, kernel: str
) -> None:
    _check(graph(relation, quants), options, kernel)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("quants", [EQUAL, EQUAL_ALIKE])
def test_numbers_that_are_equal_at_the_common_scale(
    relation: str, quants: tuple[tuple[float, int], ...]
) -> None:
    exact = relation in ("equal", "not_equal")
    _check(graph(relation, quants), Options(), "s8_compare__c" + "_limits" * (not exact))


def _check(net: Graph, options: Options, kernel: str) -> None:
    program = compile_graph(net, target.load("host"), options)
    (layer,) = program.layers
    assert layer.kernel.name == kernel
    inputs = EVERY[:, None], EVERY[None, :]
    (expected,) = Interpreter(net).run(*inputs)
    assert expected.any()
    assert not expected.all()
    np.testing.assert_array_equal(Session(program).run(*inputs)[0], expected)


def test_on_cores() -> None:
    """With constants, too; of the smallest and the largest number, all or none is true."""
    pairs = [graph(relation, quants) for relation in RELATIONS for quants in (ALIKE, OTHERS)]
    single = [graph(relation, FAR, constant) for relation in RELATIONS for constant in (-128, 30, 127)]
    check_on_cores(merge([*pairs, *single]))
