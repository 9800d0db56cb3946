"""float32 elementwise operators, pooling and reductions with vectors and floating-point units."""

from __future__ import annotations

from typing import Any

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin
from tests.kernels import graphs
from tests.kernels.choice import avoid, prefer
from tests.kernels.cores import check_all
from tests.kernels.random_networks import merge
from tests.kernels.thumb import measured
from tests.needs import CROSS_TOOLS, need_tools

FLOAT = ElementType(DType.FLOAT32)
SHAPES = (((4, 8, 8), (4, 8, 8)), ((3, 7), (3, 7)), ((5, 12), (5, 1)), ((3,), (2, 3, 3)), ((33,), (1,)))
CLIPS = (None, graphs.RELU, graphs.RELU6, Clip(-0.5, 0.25))


def _binary(op: Any, shapes: tuple[tuple[int, ...], ...], clip: Clip | None = None) -> Graph:
    inputs = [graphs.float_input(name, shape) for name, shape in zip("ab", shapes, strict=True)]
    return graphs.one_node_graph(op, inputs, {}, clip)


def _unary(op: Any, shape: tuple[int, ...], clip: Clip | None = None) -> Graph:
    return graphs.one_node_graph(op, [graphs.float_input("x", shape)], {}, clip)


BINARY = tuple(
    _binary(op, shapes, clip)
    for op in (Add(FLOAT), Sub(FLOAT), Mul(FLOAT), SquaredDifference(FLOAT), Maximum(), Minimum())
    for shapes, clip in zip(SHAPES, (*CLIPS, None), strict=True)
)
PRELU = tuple(_binary(Prelu(FLOAT), shapes) for shapes in SHAPES)
WINDOWS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 6, 5, 12), {"size": (6, 5), "strides": (1, 1), "padding": graphs.NO_PADDING}),
    ((2, 8, 7, 9), {"size": (2, 2), "strides": (2, 2), "padding": graphs.NO_PADDING}),
    ((1, 7, 6, 5), {"size": (3, 3), "strides": (2, 1), "padding": ((1, 1), (1, 2))}),
)
POOLS = tuple(
    _unary(op(**options), shape, clip)
    for shape, options in WINDOWS
    for op in (AveragePool2D, MaxPool2D)
    for clip in (None, graphs.RELU6)
)
IMAGES = (((1, 3, 5, 8), (1, 2)), ((2, 4, 1, 7), (1, 2)), ((6, 5), (0,)), ((4, 16, 16), (1,)))
REDUCTIONS = tuple(
    _unary(op, shape, clip)
    for shape, axes in IMAGES
    for op in (
        Mean(axes, False, FLOAT),
        Sum(axes, True, FLOAT),
        ReduceMax(axes, False),
        ReduceMin(axes, True),
    )
    for clip in (None, graphs.RELU6)
    if clip is None or isinstance(op, Mean)
)


ONE_OPERAND = tuple(
    _unary(op, (length,), clip)
    for op in (Abs(FLOAT), HardSwish(FLOAT), LeakyRelu(0.3, FLOAT), Unary("square", FLOAT))
    for length, clip in ((64, None), (67, graphs.RELU6))
)
DEQUANTIZED = tuple(
    graphs.one_node_graph(Dequantize(), [Value("x", TensorType(dtype, (67,), Quant.per_tensor(0.03, 5)))], {})
    for dtype in (DType.INT8, DType.INT16)
)


@pytest.mark.slow
@pytest.mark.always
def test_vectors_equal_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [*BINARY, *PRELU, *POOLS, *REDUCTIONS, *ONE_OPERAND, *DEQUANTIZED]
    cases.append(_unary(Clip(-0.5, 0.7), (67,)))
    operators = ["add", "sub", "mul", "squared_difference", "maximum", "minimum", "prelu", "clip"]
    operators += ["average_pool2d", "max_pool2d", "abs", "hard_swish", "leaky_relu", "unary"]
    names = {f"f32_{operator}__mve" for operator in operators} | {"dequantize__mve"}
    names |= {f"f32_{operator}__mve_4" for operator in ("mean", "sum", "reduce_max", "reduce_min")}
    prefer(monkeypatch, *names)
    check_all(cases, "cortex-m55", names)


@pytest.mark.slow
@pytest.mark.always
def test_floating_point_units_equal_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"f32_{operator}__fpu_4" for operator in ("mean", "sum", "reduce_max", "reduce_min")}
    names |= {f"f32_{operator}__fpu_4" for operator in ("average_pool2d", "max_pool2d")}
    operators = (Add(FLOAT), Sub(FLOAT), Mul(FLOAT), Div(FLOAT), SquaredDifference(FLOAT))
    names |= {f"f32_{operator.name}__fpu" for operator in operators}
    prefer(monkeypatch, *names)
    binary = [
        _binary(op, shapes, clip)
        for op in operators
        for shapes, clip in zip((*SHAPES, ((1,), (1,))), (*CLIPS[:3], *CLIPS[:3]), strict=True)
        if clip is None or not isinstance(op, Div)
    ]
    check_all([*REDUCTIONS, *POOLS, *binary], "cortex-m4", names)


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_cost(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    # Its one limit is taken to cost what two do.
    avoid(monkeypatch, lambda kernel: kernel.name == "f32_mul__fpu")
    image = ((8, 8, 16), (8, 8, 16))
    cases = [_binary(Add(FLOAT), image), _binary(Mul(FLOAT), image, graphs.RELU)]
    cases += [_unary(Mean((1, 2), False, FLOAT), (1, 7, 7, 64))]
    for name, estimated, counted in measured(compile_graph(merge(cases), target.load(core))):
        assert abs(estimated / counted - 1) < 0.35, (name, estimated, counted)
