"""Layers to measure: some of many sizes for every kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, Shape, TensorType
from microfold.kernels.elementwise.float_expressions import UNARY
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.bitcast import Bitcast
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from microfold.ops.movement.gather_nd import GatherNd
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.scatter_nd import ScatterNd
from microfold.ops.movement.shift_in import ShiftIn
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.top_k import TopK
from tests.kernels.calibration.cells import cells
from tests.kernels.calibration.product_sums import SAME, beside, deep, product_sums, residuals
from tests.kernels.expression_cases import cases as expressions
from tests.kernels.graphs import (
    NO_PADDING,
    RELU,
    RELU6,
    conv2d_graph,
    depthwise_conv2d_graph,
    fully_connected_graph,
    int8_element,
    int8_input,
    one_node_graph,
)
from tests.kernels.normalize.test_standardize import standardized
from tests.kernels.packing.test_float16_weights import as_halves
from tests.kernels.portable import as_float, as_int16
from tests.kernels.row_cases import element, elements

# From a few elements, where the call counts, to some thousand, and rows that no vector fills.
IMAGES: tuple[Shape, ...] = (
    (1, 3, 3, 3),
    (1, 4, 5, 7),
    (1, 7, 5, 3),
    (1, 4, 6, 16),
    (1, 9, 6, 21),
    (1, 12, 12, 24),
    (1, 3, 3, 16),
    (1, 5, 7, 11),
    (1, 6, 16, 8),
    (1, 10, 3, 33),
)
EXTREMA = (Maximum, Minimum)
TYPES = (DType.INT8, DType.INT16, DType.FLOAT32, DType.FLOAT16)


def layers() -> list[Graph]:
    """One-node graphs; equal calls give equal graphs."""
    return [
        *product_sums(),
        *_requantized(),
        *_pools(),
        *(graph for image in IMAGES for graph in elements(image)),
        *_clamped(),
        *_movement(),
        *_matrices(),
        *_rows(),
        *cells(),
        *_unusual(),
        *expressions(120, IMAGES),
        *deep(),
        *_cut_at_zero(),
        *beside(),
        *residuals(),
        *_functions(),
    ]


def _requantized() -> Iterator[Graph]:
    """Product sums whose requantisation is longer, or shorter, than that of most layers."""
    tiny, coarse = int8_element(0.0004, 11), int8_element(2.0, 3)
    variants = (
        {"out": tiny},
        {"out": coarse},
        {"activation": RELU, "out": int8_element(0.05, -128)},
        {"activation": Clip(-1.0, 1.0)},
        {"saturated": True, "per_channel": False},
        {"bias": False, "out": int8_element(0.02, -128), "activation": RELU},
    )
    for number, more in enumerate(variants):
        for height, channels, filters, size in ((9, 8, 12, (3, 3)), (6, 20, 10, (1, 1)), (4, 12, 7, (2, 3))):
            yield conv2d_graph(height, 8 + number, channels, filters, size, **more)
            yield conv2d_graph(height, 8 + number, channels, filters, size, padding=SAME, largest=7, **more)
        for height, channels, size in ((9, 8, (3, 3)), (6, 20, (5, 1)), (12, 3, (2, 4))):
            yield depthwise_conv2d_graph(height, 8 + number, channels, size, padding=SAME, **more)
        for depth, units, batch in ((90, 13, 1), (64, 32, 3), (33, 70, 1)):
            yield fully_connected_graph(depth, units, batch=batch, **more)
            yield fully_connected_graph(depth, units, batch=batch, largest=7, **more)
    for relu in (RELU, Clip(-1.0, 1.0)):
        for graph in (
            conv2d_graph(6, 7, 5, 9, activation=relu),
            conv2d_graph(5, 9, 24, 16, (1, 1), activation=relu),
            depthwise_conv2d_graph(8, 9, 10, activation=relu),
            fully_connected_graph(60, 17, activation=relu),
        ):
            yield from (as_float(graph), as_int16(graph), as_halves(graph))


def _clamped() -> Iterator[Graph]:
    """Elementwise operators with a fused activation; int16 on scales whose multipliers are others."""
    binary = (Add, Sub, Mul, SquaredDifference, Prelu)
    for image in IMAGES[1::2]:
        channels = image[3:]
        for dtype in (DType.INT8, DType.INT16, DType.FLOAT32):
            for kind in binary:
                x, out = _value(dtype, image), element(dtype, 0.11, 3)
                other = (image, channels) if kind is not Prelu else (channels,)
                for shape in other:
                    y = _value(dtype, shape, "y")
                    yield one_node_graph(kind(out), [x, y], {}, RELU6)
            yield from (one_node_graph(kind(), [x, _value(dtype, image, "y")], {}, RELU6) for kind in EXTREMA)
        real = _value(DType.FLOAT32, image)
        plain = ElementType(DType.FLOAT32)
        ops: list[Op] = [LeakyRelu(0.25, plain), Logistic(plain), Tanh(plain), Abs(plain), HardSwish(plain)]
        yield from (one_node_graph(op, [real], {}, RELU6) for op in ops)
        narrow = Value("x", TensorType(DType.FLOAT16, image))
        yield one_node_graph(Cast(DType.FLOAT32), [narrow], {})
        for scale in (1e-3, 2e-4, 3e-5):
            short = Value("x", TensorType(DType.INT16, image, Quant.per_tensor(scale)))
            other = Value("y", TensorType(DType.INT16, image, Quant.per_tensor(3.1e-4)))
            out = ElementType(DType.INT16, Quant.per_tensor(4e-4))
            yield from (
                one_node_graph(kind(out), [short, other], {}) for kind in (Add, Sub, SquaredDifference)
            )
            ops = [Relu(0.0, 6.0, out), LeakyRelu(-0.3, out), Requantize(out), Abs(out), Relu(0.0, 1e9, out)]
            yield from (one_node_graph(op, [short], {}) for op in ops)
            yield one_node_graph(Requantize(element(DType.INT8)), [short], {})


def _pools() -> Iterator[Graph]:
    for dtype in TYPES:
        for height, width, channels, size, stride, padding in (
            (12, 12, 16, (2, 2), 2, NO_PADDING),
            (12, 12, 17, (3, 3), 1, SAME),
            (12, 12, 48, (12, 12), 1, NO_PADDING),
            (6, 5, 5, (3, 3), 2, SAME),
            (25, 5, 24, (25, 5), 1, NO_PADDING),
            (4, 4, 3, (2, 2), 2, NO_PADDING),
            (7, 9, 8, (1, 4), 3, NO_PADDING),
            (3, 3, 40, (3, 3), 1, NO_PADDING),
            (10, 10, 6, (3, 3), 2, SAME),
            (16, 16, 8, (2, 2), 2, NO_PADDING),
            (8, 8, 64, (8, 8), 1, NO_PADDING),
            (7, 12, 12, (5, 5), 1, ((2, 2), (2, 2))),
            (20, 6, 4, (4, 2), 2, NO_PADDING),
            (9, 9, 20, (3, 3), 1, SAME),
            (30, 1, 16, (4, 1), 4, NO_PADDING),
            (6, 40, 32, (6, 40), 1, NO_PADDING),
            (10, 8, 12, (2, 2), 2, NO_PADDING),
            (6, 6, 20, (3, 3), 1, NO_PADDING),
            (1, 24, 28, (1, 2), 2, NO_PADDING),
            (9, 9, 4, (3, 3), 3, NO_PADDING),
        ):
            x = _value(dtype, (1, height, width, channels))
            for kind in (MaxPool2D, AveragePool2D):
                yield one_node_graph(kind(size, (stride, stride), padding), [x], {})
                if dtype is not DType.FLOAT16 and channels % 16:
                    yield one_node_graph(kind(size, (stride, stride), padding), [x], {}, RELU6)


def _unusual() -> Iterator[Graph]:
    """Shallow convolutions, windows along one axis, and products whose smallest value is the zero point."""
    product_sums = [
        *(
            conv2d_graph(size, size, channels, filters, window, padding=padding)
            for size, channels, filters, window, padding in (
                (8, 1, 8, (3, 3), SAME),
                (16, 1, 6, (3, 3), NO_PADDING),
                (20, 2, 8, (3, 3), SAME),
                (11, 1, 4, (5, 3), NO_PADDING),
                (14, 3, 12, (2, 2), NO_PADDING),
            )
        ),
        conv2d_graph(16, 8, 1, 16, (16, 1)),
        *(
            depthwise_conv2d_graph(height, 1, channels, (taps, 1), activation=activation)
            for height, channels, taps, activation in (
                (28, 64, 5, None),
                (24, 40, 9, RELU6),
                (16, 33, 4, None),
                (40, 128, 3, RELU6),
            )
        ),
    ]
    for graph in product_sums:
        yield from (graph, as_float(graph), as_int16(graph), as_halves(graph))
    for image in IMAGES[::3]:
        x, out = int8_input("x", image), int8_element(0.11, -128)
        for shape in (image, image[3:], (*image[:3], 1)):
            y = _value(DType.INT8, shape, "y")
            yield from (one_node_graph(kind(out), [x, y], {}, RELU) for kind in (Add, Mul, SquaredDifference))


def _cut_at_zero() -> Iterator[Graph]:
    """Arithmetic of floats with a lower limit alone."""
    for image in IMAGES[::2]:
        x = _value(DType.FLOAT32, image)
        for kind in (Add, Sub, Mul, SquaredDifference):
            for shape in (image, image[3:]):
                y = _value(DType.FLOAT32, shape, "y")
                yield one_node_graph(kind(element(DType.FLOAT32)), [x, y], {}, RELU)


def _functions() -> Iterator[Graph]:
    """Functions of floats of which other layers have few."""
    for image in IMAGES[::3]:
        x = _value(DType.FLOAT32, image)
        for function in sorted(UNARY.keys() - {"exp", "square", "gelu_tanh"}):
            yield one_node_graph(Unary(function, ElementType(DType.FLOAT32)), [x], {})


def _value(dtype: DType, shape: Shape, name: str = "x") -> Value:
    made = element(dtype)
    return Value(name, TensorType(dtype, shape, made.quant))


def _movement() -> Iterator[Graph]:
    for dtype in (DType.INT8, DType.INT16, DType.FLOAT32):
        for height, width, channels in ((3, 5, 2), (4, 4, 16), (7, 5, 9), (10, 12, 8)):
            x = _value(dtype, (1, height, width, channels))
            ops: list[Op] = [
                ResizeBilinear((2 * height, 2 * width), False, True),
                ResizeBilinear((height + 3, width), False, False),
                Transpose((0, 3, 1, 2)),
                Transpose((0, 2, 1, 3)),
            ]
            yield from (one_node_graph(op, [x], {}) for op in ops)
            indices = {
                Value("indices", TensorType(DType.INT32, (width, 2))): np.array(
                    [(i % height, i) for i in range(width)], np.int32
                )
            }
            plane = _value(dtype, (height, width, channels))
            yield one_node_graph(GatherNd(), [plane], indices)
            updates = Value("updates", TensorType(DType.INT32, (width, channels)))
            (places,) = indices
            node = make_node(ScatterNd((height, width, channels)), [places, updates], ["out"])
            yield Graph("net", (updates,), node.outputs, (node,), indices)
            start = {Value("start", TensorType(DType.INT32, (3,))): np.array([1, 0, 0], np.int32)}
            part = _value(dtype, (height - 2, width, channels), "update")
            yield one_node_graph(DynamicUpdateSlice(), [plane, part], start)
            newest = _value(dtype, (1, width, channels), "rows")
            yield one_node_graph(ShiftIn(0), [plane, newest], {})
    for size in (4, 25, 60, 144, 333, 700):
        x = Value("x", TensorType(DType.FLOAT32, (size,)))
        yield one_node_graph(Bitcast(ElementType(DType.INT32)), [x], {})


def _matrices() -> Iterator[Graph]:
    for dtype in (DType.INT8, DType.INT16, DType.FLOAT32):
        for first, second, turned in (
            ((16, 24), (20, 24), True),
            ((12, 32), (32, 14), False),
            ((2, 3, 5), (2, 5, 6), False),
            ((4, 33), (7, 33), True),
            ((1, 48), (10, 48), True),
            ((6, 19), (19, 2), False),
            ((3, 64), (64, 64), False),
            ((4, 16, 8), (4, 16, 8), True),
            ((8, 20), (31, 20), True),
            ((24, 12), (12, 9), False),
            ((2, 9, 40), (2, 5, 40), True),
            ((3, 7, 11), (3, 11, 8), False),
            ((1, 128), (33, 128), True),
            ((5, 96), (16, 96), True),
        ):
            quant = Quant.per_tensor(1e-4) if dtype is DType.INT16 else element(dtype).quant
            operands = [
                Value(name, TensorType(dtype, shape, quant)) for name, shape in (("a", first), ("b", second))
            ]
            yield one_node_graph(BatchMatmul(False, turned, element(dtype)), operands, {})
            if turned and len(first) == 2 and dtype is not DType.INT16:
                yield one_node_graph(FullyConnected(element(dtype)), operands, {})


def _rows() -> Iterator[Graph]:
    unit = ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128))
    for shape in ((1, 100), (64, 8), (1, 4), (3, 33), (10, 1000)):
        yield one_node_graph(Softmax(1.0, unit), [int8_input("x", shape)], {})
    for shape in ((1, 8, 16), (3, 7), (1, 20, 33), (4, 4, 24), (1, 1, 300), (9, 12), (2, 64), (16, 5)):
        rows = np.linspace(-1, 2, shape[-1])
        for scale, shift in ((rows, rows), (1.0, 0.0), (rows, 0.0), (1.0, rows)):
            yield standardized(shape, scale, shift)
    for shape in ((2, 3, 40), (1, 12, 7), (4, 20, 16), (3, 5, 9), (1, 1, 300), (6, 6, 25), (2, 30, 4)):
        for dtype in (DType.INT8, DType.FLOAT32):
            x = _value(dtype, shape)
            yield from (one_node_graph(kind(2, DType.INT32), [x], {}) for kind in (ArgMax, ArgMin))
            for count in (1, 4):
                node = make_node(TopK(count, DType.INT32), [x], ["values", "indices"])
                yield Graph("net", (x,), node.outputs, (node,), {})
    for dtype in TYPES:
        for image, axes in (((1, 8, 8, 24), (1, 2)), ((1, 3, 5, 7), (1, 2)), ((1, 20, 2, 64), (1, 2))):
            x = _value(dtype, image)
            yield one_node_graph(Mean(axes, True, element(dtype)), [x], {})
            if dtype is not DType.FLOAT16:
                yield one_node_graph(Sum(axes, False, element(dtype, 0.5)), [x], {})
