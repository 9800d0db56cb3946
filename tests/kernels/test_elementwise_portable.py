"""Elementwise, pooling, softmax, reduction and movement kernels in portable C."""

from __future__ import annotations

import math

import numpy as np
import pytest

from microfold.ir.graph import Graph, Value
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.kernels.broadcast import broadcast_strides, contiguous_strides, merge_axes
from microfold.ops.abs import Abs
from microfold.ops.add import Add
from microfold.ops.arg_max import ArgMax, ArgMin
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.broadcast_to import BroadcastTo
from microfold.ops.cast import Cast
from microfold.ops.clip import Clip
from microfold.ops.concatenate import Concatenate
from microfold.ops.dequantize import Dequantize
from microfold.ops.gather import Gather
from microfold.ops.hard_swish import HardSwish
from microfold.ops.leaky_relu import LeakyRelu
from microfold.ops.maximum import Maximum
from microfold.ops.mean import Mean, Sum
from microfold.ops.minimum import Minimum
from microfold.ops.mul import Mul
from microfold.ops.pad import Pad
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.prelu import Prelu
from microfold.ops.quantize import Quantize
from microfold.ops.reduce import ReduceMax, ReduceMin, ReduceProd
from microfold.ops.relu import Relu
from microfold.ops.requantize import Requantize
from microfold.ops.resize_bilinear import ResizeBilinear
from microfold.ops.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.softmax import Softmax
from microfold.ops.squared_difference import SquaredDifference
from microfold.ops.strided_slice import StridedSlice
from microfold.ops.sub import Sub
from microfold.ops.transpose import Transpose
from microfold.ops.transpose_conv2d import TransposeConv2D
from microfold.ops.window import Padding, Pair
from tests.kernels import graphs
from tests.kernels.portable import as_float, as_int16, check, check_on_cores

INT8 = graphs.int8_element()
INT16 = ElementType(DType.INT16, Quant.per_tensor(0.0004))
FLOAT = ElementType(DType.FLOAT32)
SHAPES = {
    "same": ((2, 3, 4), (2, 3, 4)),
    "scalar": ((2, 3, 4), (1,)),
    "first scalar": ((1,), (5, 2)),
    "channels": ((2, 3, 4), (4,)),
    "pixels": ((2, 3, 4), (2, 3, 1)),
    "both": ((3, 1, 4, 1), (1, 2, 1, 5)),
}


def _value(name: str, shape: tuple[int, ...], element: ElementType) -> Value:
    return Value(name, TensorType(element.dtype, shape, element.quant))


def _graph(op: Op, *inputs: Value, activation: Clip | None = None) -> Graph:
    return graphs.one_node_graph(op, list(inputs), {}, activation)


@pytest.mark.parametrize("element", [INT8, INT16, FLOAT], ids=["int8", "int16", "float"])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("op", [Add, Sub, Mul, SquaredDifference, Prelu])
def test_arithmetic(
    op: type[Add], shapes: tuple[tuple[int, ...], tuple[int, ...]], element: ElementType
) -> None:
    first, second = element, element
    if element is INT8:
        first, second = graphs.int8_element(0.031, 4), graphs.int8_element(0.077, -90)
    elif element is INT16:
        second = ElementType(DType.INT16, Quant.per_tensor(0.0001))
    activation = graphs.RELU6 if shapes == SHAPES["same"] else None
    check(
        _graph(
            op(element), _value("a", shapes[0], first), _value("b", shapes[1], second), activation=activation
        )
    )


@pytest.mark.parametrize("element", [INT8, INT16, ElementType(DType.INT32), ElementType(DType.BOOL), FLOAT])
@pytest.mark.parametrize("op", [Maximum, Minimum])
def test_extrema(op: type[Maximum], element: ElementType) -> None:
    check(_graph(op(), _value("a", (3, 4), element), _value("b", (4,), element)))


@pytest.mark.parametrize(
    ("first", "second", "out"), [(0.1, 0.1, 0.2), (0.1, 0.1, 0.1), (1e-6, 1.0, 0.5), (0.3, 0.2, 1e-4)]
)
def test_add_of_any_scales(first: float, second: float, out: float) -> None:
    """All pairs of int8 values; 0.1 with 0.1 has multipliers of one half."""
    a = graphs.int8_input("a", (256, 1), first, -128)
    b = graphs.int8_input("b", (1, 256), second, 127)
    check_on_cores(_graph(Add(graphs.int8_element(out, 3)), a, b))


def test_one_operand_twice_and_a_constant() -> None:
    x = graphs.int8_input("x", (3, 5))
    constant = Value("k", x.type.with_shape((5,)))
    array = np.array([-128, -1, 0, 1, 127], np.int8)
    check(graphs.one_node_graph(Mul(INT8), [x, x], {}))
    check(graphs.one_node_graph(Add(INT8), [x], {constant: array}))


TABLES = (
    Abs(INT8),
    HardSwish(INT8),
    LeakyRelu(0.2, INT8),
    LeakyRelu(-0.3, INT8),
    Relu(0.0, 6.0, INT8),
    Requantize(INT8),
    Requantize(INT16),
    Clip(-1.0, 1.0),
)


@pytest.mark.parametrize("op", TABLES, ids=str)
def test_unary_int8(op: Op) -> None:
    check(_graph(op, graphs.int8_input("x", (256,))))


@pytest.mark.parametrize(
    "op", [Abs(INT16), LeakyRelu(-0.3, INT16), Relu(-1.0, math.inf, INT16), Requantize(INT8)], ids=str
)
def test_unary_int16(op: Op) -> None:
    check_on_cores(_graph(op, _value("x", (500,), ElementType(DType.INT16, Quant.per_tensor(0.0007)))))


@pytest.mark.parametrize("element", [INT8, INT16, ElementType(DType.UINT8, Quant.per_tensor(0.1, 7))])
def test_quantize_and_back(element: ElementType) -> None:
    check_on_cores(_graph(Quantize(element), _value("x", (300,), FLOAT)))
    check_on_cores(_graph(Dequantize(), _value("x", (300,), element)))


@pytest.mark.parametrize("source", [DType.INT8, DType.INT32, DType.FLOAT32, DType.BOOL], ids=str)
@pytest.mark.parametrize("target", [DType.INT8, DType.UINT8, DType.INT64, DType.FLOAT32, DType.BOOL], ids=str)
def test_cast(source: DType, target: DType) -> None:
    check(_graph(Cast(target), _value("x", (40,), ElementType(source))))


@pytest.mark.parametrize("element", [INT8, INT16, FLOAT], ids=["int8", "int16", "float"])
@pytest.mark.parametrize("op", [AveragePool2D, MaxPool2D])
@pytest.mark.parametrize(
    ("size", "strides", "padding"),
    [
        ((2, 2), (2, 2), ((0, 0), (0, 0))),
        ((3, 3), (1, 2), ((1, 1), (2, 1))),
        ((5, 6), (1, 1), ((0, 0), (0, 0))),
    ],
)
def test_pools(
    op: type[AveragePool2D | MaxPool2D], size: Pair, strides: Pair, padding: Padding, element: ElementType
) -> None:
    x = _value("x", (2, 5, 6, 3), element)
    check(_graph(op(size, strides, padding), x, activation=graphs.RELU))


@pytest.mark.parametrize("depth", [1, 2, 10, 700])
@pytest.mark.parametrize("scale", [0.004, 0.1, 2.0])
def test_softmax(depth: int, scale: float) -> None:
    x = graphs.int8_input("x", (3, depth), scale)
    check(_graph(Softmax(1.0, graphs.int8_element(1 / 256, -128)), x))
    check(_graph(Softmax(0.7, ElementType(DType.INT16, Quant.per_tensor(1 / 65536, -32768))), x))
    check(_graph(Softmax(1.5, FLOAT), _value("x", (3, depth), FLOAT)))
    wide = ElementType(DType.INT16, Quant.per_tensor(scale / 256))
    check(
        _graph(
            Softmax(1.0, ElementType(DType.INT16, Quant.per_tensor(1 / 32768))), _value("x", (3, depth), wide)
        )
    )


@pytest.mark.parametrize("axes", [(0,), (1, 2), (3,), (0, 2), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("element", [INT8, INT16, FLOAT], ids=["int8", "int16", "float"])
def test_reductions(axes: tuple[int, ...], element: ElementType) -> None:
    x = _value("x", (2, 3, 4, 5), graphs.int8_element(0.2, 9) if element is INT8 else element)
    for op in (
        Mean(axes, False, element),
        Sum(axes, True, element),
        ReduceMax(axes, False),
        ReduceMin(axes, True),
    ):
        check(_graph(op, x), runs=5)


def test_product_and_extremum_positions() -> None:
    check(_graph(ReduceProd((1,), False), _value("x", (3, 4), FLOAT)))
    for op in (ArgMax(1, DType.INT32), ArgMin(2, DType.INT64)):
        check(_graph(op, _value("x", (2, 9, 3), INT8)))


MOVES = {
    "pad": (Pad(((0, 0), (1, 2), (0, 1), (2, 0)), -5), (2, 3, 4, 5)),
    "pad one axis": (Pad(((0, 0), (2, 2), (0, 0), (0, 0)), 3), (1, 3, 4, 5)),
    "slice": (StridedSlice((0, 1, 1), (2, 2, 3), (1, 1, 1)), (2, 3, 5)),
    "slice backwards": (StridedSlice((1, 2, 4), (2, 2, 3), (-1, -2, -2)), (2, 3, 5)),
    "transpose": (Transpose((0, 2, 1)), (2, 3, 4)),
    "transpose keeps runs": (Transpose((1, 0, 2)), (2, 3, 4)),
    "transpose of five axes": (Transpose((4, 1, 3, 0, 2)), (2, 3, 4, 2, 3)),
    "broadcast": (BroadcastTo((3, 2, 4, 5)), (2, 1, 5)),
    "resize": (ResizeNearestNeighbor((7, 4), False, True), (2, 3, 5, 2)),
}


@pytest.mark.parametrize("element", [INT8, INT16, FLOAT], ids=["int8", "int16", "float"])
@pytest.mark.parametrize(("op", "shape"), MOVES.values(), ids=MOVES)
def test_movement(op: Op, shape: tuple[int, ...], element: ElementType) -> None:
    check(_graph(op, _value("x", shape, element)), runs=4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concatenate(axis: int) -> None:
    shapes = [tuple(n if i == axis else 3 for i in range(3)) for n in (1, 4, 2)]
    check_on_cores(_graph(Concatenate(axis), *(_value(f"x{i}", s, INT8) for i, s in enumerate(shapes))))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("index", [DType.INT32, DType.INT64], ids=str)
def test_gather_takes_any_index(axis: int, index: DType) -> None:
    check(_graph(Gather(axis), _value("x", (5, 4), INT16), _value("i", (3,), ElementType(index))))


@pytest.mark.parametrize("element", [INT8, INT16, FLOAT], ids=["int8", "int16", "float"])
@pytest.mark.parametrize(("align", "half"), [(False, False), (True, False), (False, True)])
def test_resize_bilinear(align: bool, half: bool, element: ElementType) -> None:
    check(_graph(ResizeBilinear((7, 4), align, half), _value("x", (2, 3, 6, 2), element)))


@pytest.mark.parametrize("element", [INT8, INT16, FLOAT], ids=["int8", "int16", "float"])
@pytest.mark.parametrize("turns", [(False, False), (True, False), (False, True)])
def test_batch_matmul(turns: tuple[bool, bool], element: ElementType) -> None:
    first = (2, 1, 5, 3) if turns[0] else (2, 1, 3, 5)
    second = (4, 6, 5) if turns[1] else (4, 5, 6)
    check(_graph(BatchMatmul(*turns, element), _value("a", first, element), _value("b", second, element)))


def test_transpose_conv2d() -> None:
    rng = np.random.default_rng(0)
    quant = Quant((0.01, 0.02, 0.03), (0, 0, 0), 0)
    weights = Value("w", TensorType(DType.INT8, (3, 3, 2, 4), quant))
    bias = Value("b", TensorType(DType.INT32, (3,)))
    constants = {
        weights: rng.integers(-127, 128, (3, 3, 2, 4)).astype(np.int8),
        bias: rng.integers(-500, 500, 3).astype(np.int32),
    }
    x = graphs.int8_input("x", (2, 3, 4, 4))
    op = TransposeConv2D((2, 3), (1, 0), (6, 11), INT8)
    graph = graphs.one_node_graph(op, [x], constants, graphs.RELU)
    for variant in (graph, as_int16(graph), as_float(graph)):
        check(variant)


def test_loops_merge() -> None:
    """Contiguous axes become one loop; repeated ones too."""
    strides = contiguous_strides((2, 3, 4))
    assert merge_axes((2, 3, 4), strides, strides) == [(24, 1, 1)]
    assert merge_axes((2, 3, 4), strides, broadcast_strides((4,), (2, 3, 4))) == [(6, 4, 0), (4, 1, 1)]
    assert merge_axes((1, 1), [1, 1]) == [(1, 0)]
