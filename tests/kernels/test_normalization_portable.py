"""Normalisations along an axis, cumulative sums and inverse square roots in portable C."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.graph import Graph, Value
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.cumsum import Cumsum
from microfold.ops.l2_normalization import L2Normalization
from microfold.ops.log_softmax import LogSoftmax
from microfold.ops.rsqrt import Rsqrt
from tests.kernels import graphs
from tests.kernels.portable import check, check_on_cores

FLOAT = ElementType(DType.FLOAT32)


def _graph(op: Op, shape: tuple[int, ...], element: ElementType) -> Graph:
    x = Value("x", TensorType(element.dtype, shape, element.quant))
    return graphs.one_node_graph(op, [x], {})


@pytest.mark.parametrize("dtype", [DType.INT32, DType.FLOAT32])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_cumsum(axis: int, exclusive: bool, reverse: bool, dtype: DType) -> None:
    check(_graph(Cumsum(axis, exclusive, reverse), (2, 3, 5), ElementType(dtype)))


@pytest.mark.parametrize("scale", [0.004, 0.05, 0.9, 12.0])
@pytest.mark.parametrize("shape", [(40, 2), (16, 10), (1, 300), (3, 1)])
def test_log_softmax(shape: tuple[int, int], scale: float) -> None:
    out = ElementType(DType.INT8, Quant.per_tensor(1 / 16, 127))
    check(_graph(LogSoftmax(out), shape, graphs.int8_element(scale, 11)))


@pytest.mark.parametrize("zero_point", [0, -128, 77])
@pytest.mark.parametrize("shape", [(40, 2), (16, 10), (1, 3000), (64, 1)])
def test_l2_normalization(shape: tuple[int, int], zero_point: int) -> None:
    out = ElementType(DType.INT8, Quant.per_tensor(1 / 128))
    check(_graph(L2Normalization(out), shape, graphs.int8_element(0.05, zero_point)))


@pytest.mark.parametrize(("first", "second"), [(1e-4, 1e-3), (0.01, 1e-3), (3.0, 1e-4)])
def test_rsqrt_of_int16(first: float, second: float) -> None:
    element = ElementType(DType.INT16, Quant.per_tensor(first))
    check(_graph(Rsqrt(ElementType(DType.INT16, Quant.per_tensor(second))), (7, 300), element))


@pytest.mark.parametrize("op", [LogSoftmax(FLOAT), L2Normalization(FLOAT)])
def test_floats(op: Op) -> None:
    check(_graph(op, (5, 9), FLOAT))


def test_a_row_of_zeros_has_no_direction() -> None:
    out = ElementType(DType.INT8, Quant.per_tensor(1 / 128))
    graph = _graph(L2Normalization(out), (2, 4), graphs.int8_element(0.05, 3))
    program = check(graph)
    from microfold.host.session import Session

    assert not np.any(Session(program).run(np.full((2, 4), 3, np.int8))[0])


@pytest.mark.slow
def test_on_cores() -> None:
    check_on_cores(
        _graph(
            LogSoftmax(ElementType(DType.INT8, Quant.per_tensor(1 / 16, 127))),
            (8, 12),
            graphs.int8_element(0.1),
        )
    )
    check_on_cores(
        _graph(
            L2Normalization(ElementType(DType.INT8, Quant.per_tensor(1 / 128))),
            (8, 12),
            graphs.int8_element(0.1),
        )
    )
