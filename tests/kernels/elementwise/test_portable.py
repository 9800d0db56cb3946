"""Elementwise, pooling, softmax, reduction and movement kernels in portable C."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.kernels.elementwise.broadcast import broadcast_strides, contiguous_strides, merge_axes
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd
from microfold.ops.window import Padding, Pair
from tests.kernels import graphs
from tests.kernels.portable import as_float, as_int16, check, check_all, check_all_on_cores
from tests.kernels.random_networks import merge

INT8 = graphs.int8_element()
INT16 = ElementType(DType.INT16, Quant.per_tensor(0.0004))
FLOAT = ElementType(DType.FLOAT32)
every_element = pytest.mark.parametrize("element", [INT8, INT16, FLOAT], ids=["int8", "int16", "float"])
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


@every_element
def test_arithmetic(element: ElementType) -> None:
    first, second = element, element
    if element is INT8:
        first, second = graphs.int8_element(0.031, 4), graphs.int8_element(0.077, -90)
    elif element is INT16:
        second = ElementType(DType.INT16, Quant.per_tensor(0.0001))
    check_all(
        {
            f"{op.name} {name}": _graph(
                op(element),
                _value("a", a, first),
                _value("b", b, second),
                activation=graphs.RELU6 if name == "same" else None,
            )
            for op in (Add, Sub, Mul, SquaredDifference, Prelu)
            for name, (a, b) in SHAPES.items()
        }
    )


def test_extrema() -> None:
    check_all(
        {
            f"{op.name} {element}": _graph(op(), _value("a", (3, 4), element), _value("b", (4,), element))
            for op in (Maximum, Minimum)
            for element in (INT8, INT16, ElementType(DType.INT32), ElementType(DType.BOOL), FLOAT)
        }
    )


@pytest.mark.slow
@pytest.mark.always
def test_add_of_any_scales() -> None:
    """All pairs of int8 values; 0.1 with 0.1 has multipliers of one half."""
    check_all_on_cores(
        {
            f"{first} + {second} = {out}": _graph(
                Add(graphs.int8_element(out, 3)),
                graphs.int8_input("a", (256, 1), first, -128),
                graphs.int8_input("b", (1, 256), second, 127),
            )
            for first, second, out in (
                (0.1, 0.1, 0.2),
                (0.1, 0.1, 0.1),
                (1e-6, 1.0, 0.5),
                (0.3, 0.2, 1e-4),
            )
        }
    )


def test_one_operand_twice_and_a_constant() -> None:
    x, y = graphs.int8_input("x", (3, 5)), graphs.int8_input("y", (3, 5))
    constant = Value("k", x.type.with_shape((5,)))
    array = np.array([-128, -1, 0, 1, 127], np.int8)
    check_all(
        {
            "twice": graphs.one_node_graph(Mul(INT8), [x, x], {}),
            "constant": graphs.one_node_graph(Add(INT8), [y], {constant: array}),
        }
    )


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


def test_unary_int8() -> None:
    check_all({str(op): _graph(op, graphs.int8_input("x", (256,))) for op in TABLES})


def test_unary_int16() -> None:
    element = ElementType(DType.INT16, Quant.per_tensor(0.0007))
    ops = (Abs(INT16), LeakyRelu(-0.3, INT16), Relu(-1.0, math.inf, INT16), Requantize(INT8))
    check_all_on_cores({str(op): _graph(op, _value("x", (500,), element)) for op in ops})


def test_quantize_and_back() -> None:
    elements = (INT8, INT16, ElementType(DType.UINT8, Quant.per_tensor(0.1, 7)))
    there = {f"to {e.dtype}": _graph(Quantize(e), _value("x", (300,), FLOAT)) for e in elements}
    back = {f"from {e.dtype}": _graph(Dequantize(), _value("x", (300,), e)) for e in elements}
    check_all_on_cores(there | back)


def _cast(source: DType, target: DType) -> Graph:
    return _graph(Cast(target), _value("x", (40,), ElementType(source)))


def test_cast() -> None:
    check_all(
        {
            f"{source} to {target}": _cast(source, target)
            for source in (DType.INT8, DType.INT32, DType.FLOAT32, DType.BOOL)
            for target in (DType.INT8, DType.UINT8, DType.INT64, DType.FLOAT32, DType.BOOL)
            if source is not target
        }
    )


def test_a_cast_to_the_same_type_copies() -> None:
    program = check(merge([_cast(dtype, dtype) for dtype in (DType.INT8, DType.FLOAT32, DType.BOOL)]))
    assert [layer.kernel.name for layer in program.layers] == ["copy__c"] * 3


WINDOWS: tuple[tuple[Pair, Pair, Padding], ...] = (
    ((2, 2), (2, 2), ((0, 0), (0, 0))),
    ((3, 3), (1, 2), ((1, 1), (2, 1))),
    ((5, 6), (1, 1), ((0, 0), (0, 0))),
)


@every_element
def test_pools(element: ElementType) -> None:
    check_all(
        {
            f"{op.name} {window}": _graph(
                op(*window), _value("x", (2, 5, 6, 3), element), activation=graphs.RELU
            )
            for op in (AveragePool2D, MaxPool2D)
            for window in WINDOWS
        }
    )


def test_softmax() -> None:
    unit8 = graphs.int8_element(1 / 256, -128)
    unit16 = ElementType(DType.INT16, Quant.per_tensor(1 / 65536, -32768))
    half16 = ElementType(DType.INT16, Quant.per_tensor(1 / 32768))
    cases: dict[str, Graph] = {}
    for depth, scale in itertools.product((1, 2, 10, 700), (0.004, 0.1, 2.0)):
        narrow = graphs.int8_element(scale, 3)
        wide = ElementType(DType.INT16, Quant.per_tensor(scale / 256))
        for name, op, element in (
            ("int8", Softmax(1.0, unit8), narrow),
            ("int8 to int16", Softmax(0.7, unit16), narrow),
            ("float", Softmax(1.5, FLOAT), FLOAT),
            ("int16", Softmax(1.0, half16), wide),
        ):
            cases[f"{name}, {depth} of {scale}"] = _graph(op, _value("x", (3, depth), element))
    check_all(cases)


@every_element
def test_reductions(element: ElementType) -> None:
    source = graphs.int8_element(0.2, 9) if element is INT8 else element
    check_all(
        {
            f"{op.name} {axes}": _graph(op, _value("x", (2, 3, 4, 5), source))
            for axes in ((0,), (1, 2), (3,), (0, 2), (0, 1, 2, 3))
            for op in (
                Mean(axes, False, element),
                Sum(axes, True, element),
                ReduceMax(axes, False),
                ReduceMin(axes, True),
            )
        },
        runs=5,
    )


def test_product_and_extremum_positions() -> None:
    check_all(
        {
            "product": _graph(ReduceProd((1,), False), _value("x", (3, 4), FLOAT)),
            "largest": _graph(ArgMax(1, DType.INT32), _value("x", (2, 9, 3), INT8)),
            "smallest": _graph(ArgMin(2, DType.INT64), _value("x", (2, 9, 3), INT8)),
        }
    )


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


@every_element
def test_movement(element: ElementType) -> None:
    check_all({name: _graph(op, _value("x", shape, element)) for name, (op, shape) in MOVES.items()}, runs=4)


def test_concatenate() -> None:
    cases: dict[str, Graph] = {}
    for axis in range(3):
        shapes = [tuple(n if i == axis else 3 for i in range(3)) for n in (1, 4, 2)]
        inputs = [_value(f"x{i}", shape, INT8) for i, shape in enumerate(shapes)]
        cases[f"axis {axis}"] = _graph(Concatenate(axis), *inputs)
    check_all_on_cores(cases)


def test_gather_takes_any_index() -> None:
    check_all(
        {
            f"axis {axis}, {index}": _graph(
                Gather(axis), _value("x", (5, 4), INT16), _value("i", (3,), ElementType(index))
            )
            for axis in (0, 1)
            for index in (DType.INT32, DType.INT64)
        }
    )


@every_element
def test_resize_bilinear(element: ElementType) -> None:
    kinds = {"plain": (False, False), "aligned": (True, False), "half pixels": (False, True)}
    check_all(
        {
            name: _graph(ResizeBilinear((7, 4), *kind), _value("x", (2, 3, 6, 2), element))
            for name, kind in kinds.items()
        }
    )


@every_element
def test_batch_matmul(element: ElementType) -> None:
    cases: dict[str, Graph] = {}
    for turns in ((False, False), (True, False), (False, True)):
        first = (2, 1, 5, 3) if turns[0] else (2, 1, 3, 5)
        second = (4, 6, 5) if turns[1] else (4, 5, 6)
        operands = _value("a", first, element), _value("b", second, element)
        cases[f"turned {turns}"] = _graph(BatchMatmul(*turns, element), *operands)
    check_all(cases)


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
    check_all({"int8": graph, "int16": as_int16(graph), "float": as_float(graph)})


def test_loops_merge() -> None:
    """Contiguous axes become one loop; repeated ones too."""
    strides = contiguous_strides((2, 3, 4))
    assert merge_axes((2, 3, 4), strides, strides) == [(24, 1, 1)]
    assert merge_axes((2, 3, 4), strides, broadcast_strides((4,), (2, 3, 4))) == [(6, 4, 0), (4, 1, 1)]
    assert merge_axes((1, 1), [1, 1]) == [(1, 0)]
