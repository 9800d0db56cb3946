"""int16 elementwise operators and pooling with DSP instructions and with Helium, on the simulated cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from microfold import target
from microfold.arithmetic import numerics
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import check_all, compile_all
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools

Shapes = tuple[tuple[int, ...], ...]
SHAPES: tuple[Shapes, ...] = (
    ((40, 64), (40, 64)),
    ((3, 4, 7), (3, 4, 7)),
    ((5, 12), (5, 1)),
    ((3,), (2, 3, 3)),
    ((8, 6, 8), (8,)),
)
# Of both operands and the result: with the first one larger, the second one, by far, and equal ones.
SCALES = ((3.1e-4, 2.2e-4, 4.1e-4), (1e-4, 3e-4, 2e-4), (1e-5, 3e-4, 3.2e-4), (2e-4, 2e-4, 3e-4))


def _input(name: str, shape: tuple[int, ...], scale: float = 1e-4) -> Value:
    return Value(name, TensorType(DType.INT16, shape, Quant.per_tensor(scale)))


def _element(scale: float, dtype: DType = DType.INT16, zero_point: int = 0) -> ElementType:
    return ElementType(dtype, Quant.per_tensor(scale, zero_point))


def _binary(
    op: type[Any], scales: tuple[float, float, float], shapes: Shapes, activation: Clip | None = None
) -> Graph:
    operands = [_input(name, shape, s) for name, shape, s in zip("ab", shapes, scales, strict=False)]
    return graphs.one_node_graph(op(_element(scales[2])), operands, {}, activation)


def _unary(op: Op, scale: float, length: int, activation: Clip | None = None) -> Graph:
    return graphs.one_node_graph(op, [_input("x", (length,), scale)], {}, activation)


SUMS = (
    *(_binary(op, SCALES[0], shapes) for op in (Add, Sub) for shapes in SHAPES),
    *(_binary(op, scales, SHAPES[0]) for op in (Add, Sub) for scales in SCALES[1:]),
    *(_binary(op, SCALES[1], SHAPES[1], clip) for op in (Add, Sub) for clip in (graphs.RELU, graphs.RELU6)),
    _binary(Add, SCALES[0], SHAPES[0], Clip(-1.0, 2.0)),
)
PRODUCTS = (
    *(_binary(Mul, (3e-4, 4e-4, 1e-3), shapes) for shapes in SHAPES),
    _binary(Mul, (1 / 32768, 1 / 32768, 1 / 32768), SHAPES[0]),
    _binary(Mul, (3e-4, 4e-4, 1e-3), SHAPES[1], graphs.RELU6),
)
RATIOS = (0.5, 0.99, 1.3, 3.7, 0.031, 300.0)  # of the scales of input and output
RESCALED = (
    *(_unary(Requantize(_element(1e-4)), 1e-4 * ratio, 1000 + i) for i, ratio in enumerate(RATIOS)),
    *(_unary(Requantize(_element(0.02, DType.INT8, -7)), 1e-4 * r, 1003) for r in RATIOS),
    *(_unary(LeakyRelu(alpha, _element(1e-4)), 1e-4 * r, 1001) for r in RATIOS for alpha in (0.1, -0.7)),
    *(_unary(Relu(low, high, _element(1e-4)), 1.3e-4, 1002) for low, high in ((0, 6), (-1, 1))),
    *(_unary(Abs(_element(1e-4)), 1e-4 * ratio, 1000) for ratio in (0.7, 1.3)),
    _unary(Requantize(_element(1e-4)), 1.3e-4, 1000, graphs.RELU),
)
POOLS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 12, 5, 12), {"size": (12, 5), "strides": (1, 1), "padding": graphs.NO_PADDING}),
    ((1, 17, 15, 9), {"size": (17, 15), "strides": (1, 1), "padding": graphs.NO_PADDING}),
    ((2, 8, 7, 33), {"size": (2, 2), "strides": (2, 2), "padding": graphs.NO_PADDING}),
    ((1, 7, 6, 19), {"size": (3, 3), "strides": (2, 1), "padding": ((1, 1), (1, 2))}),
    ((1, 9, 2, 5), {"size": (7, 1), "strides": (2, 1), "padding": ((3, 3), (0, 0))}),
    ((1, 5, 4, 2), {"size": (1, 1), "strides": (2, 2), "padding": graphs.NO_PADDING}),
)
POOLED = tuple(
    graphs.one_node_graph(op(**options), [_input("x", shape)], {}, activation)
    for shape, options in POOLS
    for op in (AveragePool2D, MaxPool2D)
    for activation in (None, Clip(-1.0, 2.0))
)
EXTREMA = tuple(
    graphs.one_node_graph(op(), [_input("a", a), _input("b", b)], {})
    for op in (Maximum, Minimum)
    for a, b in SHAPES
)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", ["dsp", "mve"])
def test_equals_the_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [*SUMS, *PRODUCTS, *RESCALED, *POOLED]
    operators = ["add", "sub", "mul", "requantize", "leaky_relu", "relu", "abs"]
    operators += ["average_pool2d", "max_pool2d"]
    if core == "mve":
        cases += [_binary(op, SCALES[0], shapes) for op in (SquaredDifference, Prelu) for shapes in SHAPES]
        cases += [*EXTREMA, _unary(Clip(-0.5, 0.7), 1e-4, 1003)]
        operators += ["squared_difference", "prelu", "maximum", "minimum", "clip"]
    names = {f"s16_{operator}__{core}" for operator in operators}
    prefer(monkeypatch, *names)
    check_all(cases, {"dsp": "cortex-m4", "mve": "cortex-m55"}[core], names, runs=8)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["cortex-m7", "cortex-m33"])
def test_two_elements_at_a_time(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the steps to a result wait for each other, see `late_loads`."""
    names = {f"s16_{operator}__dsp" for operator in ("add", "sub", "mul")}
    prefer(monkeypatch, *names)
    check_all([*SUMS, *PRODUCTS], core, names, runs=8)


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_cost(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    cases = [SUMS[0], SUMS[4], PRODUCTS[0], RESCALED[0], RESCALED[2], POOLED[0], POOLED[14]]
    for name, estimated, counted in measured(compile_graph(merge(cases), target.load(core))):
        assert abs(estimated / counted - 1) < 0.3, (name, estimated, counted)


def test_the_largest_product_may_be_left_to_others() -> None:
    """Twice (-2^15)^2 has 32 bits: as 2^31 - 1 it may be rounded the other way."""
    refused = 0
    scales = [0.6 * (1.0 + step * 1e-4) for step in range(200)]
    cases = {str(scale): _binary(Mul, (3e-4, 4e-4, scale), ((64,), (64,))) for scale in scales}
    layers = compile_all(cases, target.load("cortex-m4"))[1]
    for scale in scales:
        multiplier = numerics.quantize_multiplier(3e-4 * 4e-4 / scale)
        exact = numerics.multiply_by_quantized_multiplier(np.array([1 << 30]), *multiplier)[0]
        high = ((1 << 31) - 1) * multiplier.mantissa + (1 << 31) >> 32
        same = exact == high + (1 << (-multiplier.shift - 1)) >> -multiplier.shift
        assert layers[str(scale)].kernel.name == ("s16_mul__dsp" if same else "s16_mul__c")
        refused += not same
    assert refused < 20
