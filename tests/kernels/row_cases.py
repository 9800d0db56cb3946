"""Layers on images for the tests of bands: some for every kernel of an operator that works by rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, Shape, TensorType
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.fake_quantize import FakeQuantize
from microfold.ops.elementwise.fast_math import FastSoftmax
from microfold.ops.elementwise.float_binary import float_binary_operators
from microfold.ops.elementwise.lookup import Lookup
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.plain_binary import plain_binary_operators
from microfold.ops.elementwise.quantized_div import QuantizedDiv
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.select import Select
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.copy import Copy
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.quantized_cumsum import QuantizedCumsum
from microfold.ops.reduce.quantized_reduce_prod import QuantizedReduceProd
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd
from tests.kernels.expression_cases import cases as expressions
from tests.kernels.graphs import RELU6, conv2d_graph, depthwise_conv2d_graph, int8_input, one_node_graph
from tests.kernels.normalize.test_standardize import standardized
from tests.kernels.packing.test_float16 import as_float16
from tests.kernels.packing.test_float16_weights import as_halves
from tests.kernels.portable import as_float, as_int16, with_wide_weights

I8, I16, I32, I64 = DType.INT8, DType.INT16, DType.INT32, DType.INT64
U8 = DType.UINT8
F16, F32, BOOL = DType.FLOAT16, DType.FLOAT32, DType.BOOL
SAME3 = ((1, 1), (1, 1))
# Odd widths and channels put rows at any address.
IMAGE = (1, 7, 5, 3)
UNIT = {I8: Quant.per_tensor(1 / 256, -128), I16: Quant.per_tensor(1 / 32768)}
SIGNED_UNIT = {I8: Quant.per_tensor(1 / 128), I16: Quant.per_tensor(1 / 32768)}


@cache
def cases() -> list[Graph]:
    """One-node graphs of one image."""
    return [*_product_sums(), *_pools(), *elements(IMAGE)]


def elements(image: Shape) -> list[Graph]:
    """Operators on the elements of images of one shape, at least (1, 3, 3, 3)."""
    return [
        *_unary(image),
        *_binary(image),
        *_movement(image),
        *_along_axes(image),
        *expressions(4, [image], seed=math.prod(image)),
        standardized(image, 1.0, 0.0),
    ]


def element(dtype: DType, scale: float = 0.05, zero_point: int = -5) -> ElementType:
    if dtype in (I8, U8):
        return ElementType(dtype, Quant.per_tensor(scale, zero_point if dtype is I8 else zero_point + 128))
    return ElementType(dtype, Quant.per_tensor(scale / 256) if dtype is I16 else None)


def _image(made: ElementType, shape: Shape) -> Value:
    return Value("x", TensorType(made.dtype, shape, made.quant))


def _constant(made: ElementType, shape: Shape) -> dict[Value, Array]:
    low, high = {I8: (-128, 127), I16: (-32768, 32767), BOOL: (0, 1)}.get(made.dtype, (1, 9))
    array = np.random.default_rng(0).integers(low, high, shape, endpoint=True).astype(made.dtype.numpy)
    return {Value("constant", TensorType(made.dtype, shape, made.quant)): array}


def _product_sums() -> Iterator[Graph]:
    convolutions = [
        conv2d_graph(7, 6, 8, 8, padding=SAME3),
        conv2d_graph(9, 8, 3, 5, strides=(2, 2), padding=((0, 1), (0, 1)), activation=RELU6),
        conv2d_graph(5, 5, 12, 7, (1, 1)),
        conv2d_graph(9, 5, 4, 6, dilations=(2, 1), padding=((2, 2), (1, 1))),
    ]
    depthwise = [
        depthwise_conv2d_graph(7, 6, 8, padding=SAME3),
        depthwise_conv2d_graph(9, 5, 5, strides=(2, 1), padding=((1, 1), (1, 1)), activation=RELU6),
        depthwise_conv2d_graph(7, 6, 4, (5, 3), multiplier=2, padding=((2, 2), (1, 1))),
        depthwise_conv2d_graph(7, 5, 5),
    ]
    transposed = [_transposed((4, 4)), _transposed((3, 5))]
    yield from (with_wide_weights(graph) for graph in (*convolutions, *depthwise, *transposed))
    for graph in (*convolutions, *depthwise, *transposed):
        yield from (graph, as_float(graph), as_int16(graph), as_halves(graph))
    # Of clipped results, other roundings of float16 are more than they should be.
    yield from (as_float16(g) for g in (*convolutions, *depthwise) if not g.nodes[0].epilogue)
    # Weights of 4 bits; outputs enough for code that is long.
    yield conv2d_graph(7, 6, 8, 8, padding=SAME3, largest=7)
    yield conv2d_graph(9, 40, 4, 26, padding=SAME3)


def _transposed(kernel: tuple[int, int]) -> Graph:
    rng = np.random.default_rng(0)
    shape = (6, *kernel, 5)
    weights = Value("weights", TensorType(I8, shape, Quant.per_tensor(0.01)))
    bias = Value("bias", TensorType(I32, (6,)))
    constants: dict[Value, Array] = {
        weights: rng.integers(-128, 128, shape).astype(np.int8),
        bias: rng.integers(-900, 900, 6).astype(np.int32),
    }
    op = TransposeConv2D((2, 2), (1, 1), (8, 10), element(I8))
    return one_node_graph(op, [int8_input("x", (1, 4, 5, 5))], constants)


def _pools() -> Iterator[Graph]:
    for dtype in (I8, U8, I16, F32, F16):
        for channels in (5, 8):
            x = _image(element(dtype), (1, 6, 5, channels))
            if dtype is not U8:
                yield one_node_graph(MaxPool2D((3, 3), (2, 1), SAME3), [x], {})
            yield one_node_graph(AveragePool2D((3, 3), (1, 1), SAME3), [x], {})
            yield one_node_graph(AveragePool2D((2, 2), (2, 2), ((0, 0), (0, 0))), [x], {})


def _unary(image: Shape) -> Iterator[Graph]:
    for dtype in (I8, I16, F32):
        made, out = element(dtype, 0.02), element(dtype)
        unit, signed = (ElementType(dtype, quants.get(dtype)) for quants in (UNIT, SIGNED_UNIT))
        ops: list[Op] = [
            *(Abs(out), LeakyRelu(0.25, out), Logistic(unit), Tanh(signed)),
            *(Unary("exp", out), Clip(-1.0, 1.0), Softmax(1.0, unit)),
        ]
        if dtype is not F32:
            ops += [Relu(0.0, 6.0, out), Requantize(out), Dequantize()]
        if dtype is not I16:
            logarithm = ElementType(dtype, Quant.per_tensor(1 / 16, 127) if dtype is I8 else None)
            ops += [HardSwish(out), L2Normalization(signed), LogSoftmax(logarithm)]
        yield from (one_node_graph(op, [_image(made, image)], {}) for op in ops)
        yield one_node_graph(Rsqrt(out), [_image(element(dtype, 0.02, -128), image)], {})
    yield one_node_graph(Unary("sqrt", element(I16)), [_image(element(I16), image)], {})
    bytes_ = _image(element(I8), image)
    yield one_node_graph(Lookup(tuple(range(127, -129, -1)), element(I8)), [bytes_], {})
    yield one_node_graph(Softmax(1.0, ElementType(I16, Quant.per_tensor(1 / 65536, -32768))), [bytes_], {})
    for function in ("square", "gelu_tanh"):
        yield one_node_graph(Unary(function, ElementType(F32)), [_image(ElementType(F32), image)], {})
    yield one_node_graph(FastSoftmax(1.0, ElementType(F32)), [_image(ElementType(F32), image)], {})
    yield one_node_graph(FakeQuantize(-1.0, 2.0, 8, False), [_image(ElementType(F32), image)], {})
    yield one_node_graph(Quantize(element(I8)), [_image(ElementType(F32), image)], {})
    yield one_node_graph(Clip(-1.0, 1.0), [_image(ElementType(F16), image)], {})
    yield one_node_graph(Cast(I32), [_image(ElementType(F32), image)], {})
    yield one_node_graph(Cast(F16), [_image(ElementType(F32), image)], {})


def _binary(image: Shape) -> Iterator[Graph]:
    arithmetic = (Add, Sub, Mul, SquaredDifference, Prelu)
    for dtype in (I8, I16, F32):
        made, other, out = element(dtype), element(dtype, 0.07, 9), element(dtype, 0.11, 3)
        yield from (graph for op in arithmetic for graph in _operands(op(out), image, made, other))
    # Elements enough for tables.
    wide = int8_input("x", (1, 5, 40, 8))
    number = {Value("number", TensorType(I8, (), wide.type.quant)): np.array(17, np.int8)}
    for dtype in (I8, U8, I16):
        quotient = QuantizedDiv(element(dtype, 0.11, 3))
        yield from _operands(quotient, image, element(dtype), element(dtype, 0.07, 9))
    yield one_node_graph(QuantizedDiv(element(I8, 0.2)), [wide], number)
    for op in (*(kind(element(I8, 0.2)) for kind in arithmetic), Maximum(), Minimum()):
        yield one_node_graph(op, [wide, int8_input("y", wide.type.shape)], {})
        yield one_node_graph(op, [wide], number)
    real = ElementType(F32)
    yield from (graph for op in float_binary_operators() for graph in _operands(op(real), image, real, real))
    for op in plain_binary_operators():
        for dtype in op.dtypes:
            yield from _operands(op(element(dtype)), image, element(dtype), element(dtype))
    for dtype in (I32, I64, F16):
        made = ElementType(dtype)
        yield from (graph for op in (Add, Sub, Mul) for graph in _operands(op(made), image, made, made))
    words = ElementType(DType.UINT32)
    yield from _operands(Mul(words), image, words, words)
    for dtype in (I8, I16, F32, F16, I32, I64, BOOL, U8):
        made = element(dtype)
        yield from (graph for op in (Maximum(), Minimum()) for graph in _operands(op, image, made, made))
        if dtype not in (F16, U8):
            yield from _operands(Compare("equal" if dtype is BOOL else "less"), image, made, made)
    whole = ElementType(I32)
    yield from _operands(SquaredDifference(whole), image, whole, whole)
    condition = _constant(ElementType(BOOL), (1, image[1], 1, 1))
    yield one_node_graph(Select(), [], condition | _named("x", image) | _named("y", image[2:]))


def _operands(op: Op, image: Shape, first: ElementType, second: ElementType) -> Iterator[Graph]:
    """Two images; an image and a constant for each channel, for all, and one with rows."""
    _, height, _, channels = image
    y = Value("y", TensorType(second.dtype, image, second.quant))
    yield one_node_graph(op, [_image(first, image), y], {})
    for shape in ((channels,), (1,), (height, 1, channels)):
        yield one_node_graph(op, [_image(first, image)], _constant(second, shape))


def _named(name: str, shape: tuple[int, ...]) -> dict[Value, Array]:
    """A constant, of a name of its own."""
    (array,) = _constant(element(I8), shape).values()
    return {Value(name, TensorType(I8, shape, element(I8).quant)): array}


def _movement(image: Shape) -> Iterator[Graph]:
    _, height, width, channels = image
    for dtype in (I8, I16, F32):
        x = _image(element(dtype), image)
        wide = Value("y", TensorType(dtype, (1, height, width, channels + 1), element(dtype).quant))
        indices = {Value("indices", TensorType(I32, (3,))): np.array([2, 0, width - 1], np.int32)}
        ops: list[Op] = [
            Copy(),
            Pad(((0, 0), (2, 1), (1, 2), (0, 0)), 7.0),
            StridedSlice((0, height - 1, 0, 1), (1, height // 2, width, channels - 1), (1, -2, 1, 1)),
            Transpose((0, 1, 3, 2)),
            ResizeNearestNeighbor((2 * height, 2 * width), False, False),
        ]
        yield from (one_node_graph(op, [x], {}) for op in ops)
        yield one_node_graph(Concatenate(3), [x, wide], {})
        yield one_node_graph(BroadcastTo(image), [_image(element(dtype), (1, height, 1, channels))], {})
        yield one_node_graph(Gather(2), [x], indices)
        yield one_node_graph(Transpose((0, 1, 3, 2)), [_image(element(dtype), (1, 3, 17, 9))], {})


def _along_axes(image: Shape) -> Iterator[Graph]:
    deep = (*image[:3], 8 * -(-image[3] // 8))
    for dtype in (I8, I16, F32, F16):
        x = _image(element(dtype), deep)
        for axes in ((2,), (3,)):
            ops: list[Op] = [ReduceMax(axes, True), ReduceMin(axes, True), Mean(axes, True, element(dtype))]
            if dtype is not F16:
                ops.append(Sum(axes, True, element(dtype, 0.5)))
            yield from (one_node_graph(op, [x], {}) for op in ops)
    for dtype in (F32, I32, I64):
        plain = _image(ElementType(dtype), image)
        if dtype is not I64:
            yield one_node_graph(Cumsum(2, False, True), [plain], {})
        yield one_node_graph(ReduceProd((2,), True), [plain], {})
        if dtype is not F32:
            yield one_node_graph(Sum((2,), True, ElementType(dtype)), [plain], {})
            yield one_node_graph(Mean((2,), True, ElementType(dtype)), [plain], {})
    for dtype in (I8, I16):
        products = QuantizedReduceProd((2,), True, element(dtype, 0.5))
        yield one_node_graph(products, [_image(element(dtype), image)], {})
    sums = QuantizedCumsum(2, False, True, element(I8, 0.5))
    yield one_node_graph(sums, [_image(element(I8), image)], {})
