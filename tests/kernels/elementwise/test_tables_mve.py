"""Softmax of int8 and functions of int16 by gathering loads, on the simulated core, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.unary import Unary
from microfold.ops.normalize.softmax import Softmax
from microfold.options import Options
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools

CORE = "cortex-m55"
UNIT = ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128))
WIDE_UNIT = ElementType(DType.INT16, Quant.per_tensor(1 / 65536, -32768))
INT16_UNIT = ElementType(DType.INT16, Quant.per_tensor(1 / 32768))
ALL = np.arange(-32768, 32768).astype(np.int16)


def _softmax(shape: tuple[int, ...], scale: float = 0.1, out: ElementType = UNIT) -> Graph:
    return graphs.one_node_graph(Softmax(1.0, out), [graphs.int8_input("x", shape, scale)], {})


def _function(op: Op, scale: float, length: int) -> Graph:
    x = Value("x", TensorType(DType.INT16, (length,), Quant.per_tensor(scale)))
    return graphs.one_node_graph(op, [x], {}, graphs.RELU if length % 2 else None)


@pytest.mark.slow
@pytest.mark.always
def test_softmax_equals_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    names = {"s8_softmax__mve", "s8_s16_softmax__mve"}
    prefer(monkeypatch, *names)
    cases = [_softmax(shape) for shape in ((1, 10), (4, 12), (2, 1), (3, 2), (2, 33), (1, 300))]
    cases += [_softmax((2, 33), scale) for scale in (0.01, 1.0)]
    cases += [_softmax(shape, 0.1, WIDE_UNIT) for shape in ((3, 7), (1, 64))]
    program = compile_graph(merge(cases), target.load(CORE), Options(optimize="speed"))
    assert {layer.kernel.name for layer in program.layers} == names
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.always
def test_softmax_without_a_table_equals_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    names = {"s8_softmax__mve_exp", "s8_s16_softmax__mve_exp"}
    prefer(monkeypatch, *names)
    scales = (2.0**-25, 0.002, 0.03, 0.1, 0.4, 1.7, 16.0, 31.0, 200.0)
    cases = [_softmax((256, 2), scale, out) for scale in scales for out in (UNIT, WIDE_UNIT)]
    cases += [_softmax(shape) for shape in ((1, 10), (4, 12), (2, 1), (2, 33))]
    program = compile_graph(merge(cases), target.load(CORE))
    assert {layer.kernel.name for layer in program.layers} == names
    # Of rows of two elements every difference.
    every = np.stack([np.full(256, 127), np.arange(-128, 128)], axis=1).astype(np.int8)
    calls = [
        tuple(
            every if b.type.shape == every.shape else np.full(b.type.shape, 3, np.int8)
            for b in program.inputs
        )
    ]
    calls += verify.input_sets([b.type for b in program.inputs], 4)
    result = verify.verify(program, calls)
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.always
def test_functions_of_all_values_equal_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    names = {"s16_logistic__mve", "s16_tanh__mve", "s16_unary__mve_table"}
    prefer(monkeypatch, *names)
    quarter = len(ALL) // 4
    cases = [
        _function(Logistic(INT16_UNIT), 3e-4, quarter),
        _function(Logistic(INT16_UNIT), 0.02, quarter + 1),
        _function(Tanh(INT16_UNIT), 3e-4, quarter + 1),
        _function(Unary("exp", ElementType(DType.INT16, Quant.per_tensor(1e-3))), 3e-4, quarter + 1),
    ]
    program = compile_graph(merge(cases), target.load(CORE))
    assert {layer.kernel.name for layer in program.layers} == names
    calls = [
        tuple(np.resize(np.roll(ALL, -part * quarter), b.type.shape) for b in program.inputs)
        for part in range(4)
    ]
    result = verify.verify(program, calls)
    assert result.exact, result.first_difference


@pytest.mark.slow
@pytest.mark.figures
def test_cost() -> None:
    need_tools(*CROSS_TOOLS)
    cases = [_softmax((1, 100)), _softmax((16, 12)), _function(Logistic(INT16_UNIT), 3e-4, 1000)]
    cases.append(_function(Tanh(INT16_UNIT), 3e-4, 1001))
    for name, estimated, counted in measured(compile_graph(merge(cases), target.load(CORE))):
        assert abs(estimated / counted - 1) < 0.25, (name, estimated, counted)
