"""Normalisations along an axis, cumulative sums and inverse square roots in portable C."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.reduce.cumsum import Cumsum
from tests.kernels import graphs
from tests.kernels.portable import check, check_all, check_all_on_cores

FLOAT = ElementType(DType.FLOAT32)


def _graph(op: Op, shape: tuple[int, ...], element: ElementType) -> Graph:
    x = Value("x", TensorType(element.dtype, shape, element.quant))
    return graphs.one_node_graph(op, [x], {})


LOGARITHMS = ElementType(DType.INT8, Quant.per_tensor(1 / 16, 127))
DIRECTIONS = ElementType(DType.INT8, Quant.per_tensor(1 / 128))


@pytest.mark.slow
@pytest.mark.always
def test_cumsum() -> None:
    check_all(
        {
            f"{dtype} {op}": _graph(op, (2, 3, 5), ElementType(dtype))
            for dtype in (DType.INT32, DType.FLOAT32)
            for op in itertools.starmap(Cumsum, itertools.product(range(3), (False, True), (False, True)))
        }
    )


def test_log_softmax() -> None:
    check_all(
        {
            f"{shape} of {scale}": _graph(LogSoftmax(LOGARITHMS), shape, graphs.int8_element(scale, 11))
            for shape in ((40, 2), (16, 10), (1, 300), (3, 1))
            for scale in (0.004, 0.05, 0.9, 12.0)
        }
    )


def test_l2_normalization() -> None:
    check_all(
        {
            f"{shape} from {point}": _graph(
                L2Normalization(DIRECTIONS), shape, graphs.int8_element(0.05, point)
            )
            for shape in ((40, 2), (16, 10), (1, 3000), (64, 1))
            for point in (0, -128, 77)
        }
    )


def test_rsqrt_of_int16() -> None:
    cases: dict[str, Graph] = {}
    for first, second in ((1e-4, 1e-3), (0.01, 1e-3), (3.0, 1e-4)):
        x, out = (ElementType(DType.INT16, Quant.per_tensor(scale)) for scale in (first, second))
        cases[f"{first} to {second}"] = _graph(Rsqrt(out), (7, 300), x)
    check_all(cases)


def test_floats() -> None:
    check_all({op.name: _graph(op, (5, 9), FLOAT) for op in (LogSoftmax(FLOAT), L2Normalization(FLOAT))})


def test_a_row_of_zeros_has_no_direction() -> None:
    graph = _graph(L2Normalization(DIRECTIONS), (2, 4), graphs.int8_element(0.05, 3))
    program = check(graph)
    from microfold.host.session import Session

    assert not np.any(Session(program).run(np.full((2, 4), 3, np.int8))[0])


@pytest.mark.slow
@pytest.mark.always
def test_on_cores() -> None:
    ops = (LogSoftmax(LOGARITHMS), L2Normalization(DIRECTIONS))
    check_all_on_cores({op.name: _graph(op, (8, 12), graphs.int8_element(0.1)) for op in ops})
