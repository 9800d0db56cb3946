"""Layers to measure: some of many sizes for every kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from microfold.frontend.tflite import import_model
from microfold.ir.graph import Graph, State
from microfold.ir.node import Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, Shape, TensorType
from microfold.kernels.elementwise.float_expressions import UNARY
from microfold.ops.batch_matmul import BatchMatmul
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
from microfold.ops.recurrent.svdf import Svdf
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.top_k import TopK
from tests.kernels.conv2d.test_residual import residual_graph
from tests.kernels.expression_cases import cases as expressions
from tests.kernels.fully_connected.test_sparse import prune
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
from tests.kernels.packing.test_float16 import as_float16
from tests.kernels.packing.test_float16_weights import as_halves
from tests.kernels.portable import as_float, as_int16
from tests.kernels.row_cases import element, elements
from tests.recurrent_models import Parts, Sequence, float_lstm, float_rnn, integer_lstm, lstm_8x8_16
from tests.tflite_writer import Writer

SAME = ((1, 1), (1, 1))
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
        *_product_sums(),
        *_requantized(),
        *_pools(),
        *(graph for image in IMAGES for graph in elements(image)),
        *_clamped(),
        *_movement(),
        *_matrices(),
        *_rows(),
        *_cells(),
        *_unusual(),
        *expressions(120, IMAGES),
        *_deep(),
        *_cut_at_zero(),
        *_beside(),
        *_residuals(),
        *_functions(),
    ]


def _product_sums() -> Iterator[Graph]:
    convolutions = [
        conv2d_graph(
            12,
            width,
            channels,
            filters,
            size,
            padding=padding,
            strides=(stride, stride),
            activation=activation,
        )
        for width, channels, filters, size, padding, stride, activation in (
            (12, 3, 8, (3, 3), SAME, 2, RELU6),
            (12, 1, 16, (5, 5), ((2, 2), (2, 2)), 1, None),
            (12, 8, 8, (3, 3), SAME, 1, None),
            (12, 16, 32, (3, 3), SAME, 2, RELU6),
            (9, 24, 17, (3, 3), SAME, 1, None),
            (12, 8, 24, (1, 1), NO_PADDING, 1, None),
            (12, 32, 32, (1, 1), NO_PADDING, 1, RELU6),
            (7, 19, 21, (1, 1), NO_PADDING, 1, None),
            (12, 64, 48, (1, 1), NO_PADDING, 1, None),
            (12, 16, 32, (1, 1), NO_PADDING, 2, None),
            (12, 4, 12, (1, 7), ((0, 0), (3, 3)), 1, None),
            (5, 5, 3, (3, 3), NO_PADDING, 1, RELU6),
            (3, 2, 2, (2, 2), NO_PADDING, 2, None),
            (6, 48, 6, (1, 1), NO_PADDING, 2, None),
            (5, 12, 30, (3, 2), NO_PADDING, 3, None),
            (8, 20, 24, (3, 3), SAME, 1, None),
            (10, 40, 16, (1, 1), NO_PADDING, 1, None),
            (4, 7, 33, (5, 3), NO_PADDING, 1, None),
            (16, 4, 4, (3, 3), SAME, 1, RELU6),
            (40, 8, 16, (1, 1), NO_PADDING, 1, RELU6),
            (28, 32, 64, (1, 1), NO_PADDING, 1, None),
            (6, 128, 96, (1, 1), NO_PADDING, 1, RELU6),
            (3, 200, 256, (1, 1), NO_PADDING, 1, None),
            (32, 16, 16, (3, 3), SAME, 1, RELU6),
            (16, 32, 32, (3, 3), SAME, 1, None),
            (8, 64, 64, (3, 3), SAME, 1, RELU6),
            (48, 3, 8, (3, 3), SAME, 2, None),
        )
    ]
    depthwise = [
        depthwise_conv2d_graph(
            14,
            width,
            channels,
            size,
            padding=padding,
            strides=(stride, stride),
            multiplier=multiplier,
            activation=activation,
        )
        for width, channels, size, padding, stride, multiplier, activation in (
            (14, 8, (3, 3), SAME, 1, 1, RELU6),
            (14, 32, (3, 3), SAME, 1, 1, None),
            (11, 17, (3, 3), SAME, 2, 1, None),
            (14, 32, (3, 3), SAME, 2, 1, RELU6),
            (14, 16, (5, 5), ((2, 2), (2, 2)), 1, 1, None),
            (14, 1, (8, 8), ((3, 4), (3, 4)), 2, 8, None),
            (14, 24, (1, 9), ((0, 0), (4, 4)), 1, 1, None),
            (5, 3, (3, 3), NO_PADDING, 1, 1, None),
            (6, 4, (4, 4), NO_PADDING, 2, 1, RELU6),
            (4, 40, (3, 3), SAME, 1, 1, None),
            (3, 9, (14, 3), NO_PADDING, 1, 1, None),
            (9, 12, (5, 3), SAME, 1, 1, None),
            (16, 6, (2, 2), NO_PADDING, 2, 1, None),
            (10, 20, (1, 3), ((0, 0), (1, 1)), 1, 1, RELU6),
            (7, 48, (7, 7), ((3, 3), (3, 3)), 1, 1, None),
            (48, 8, (3, 3), SAME, 1, 1, RELU6),
            (44, 16, (3, 3), SAME, 2, 1, None),
            (24, 40, (3, 3), SAME, 1, 1, RELU6),
            (12, 72, (3, 3), SAME, 1, 1, None),
            (6, 144, (3, 3), SAME, 1, 1, RELU6),
            (25, 24, (5, 5), ((2, 2), (2, 2)), 2, 1, None),
        )
    ]
    # Along time alone, where what a call does once is much of it.
    convolutions += [
        conv2d_graph(1, width, channels, filters, (1, taps), padding=((0, 0), (before, after)))
        for width, channels, filters, taps, before, after in (
            (8, 16, 16, 3, 1, 1),
            (6, 8, 16, 3, 0, 0),
            (24, 6, 10, 5, 2, 2),
            (40, 8, 24, 3, 2, 0),
        )
    ]
    # Windows as large as the image, as those of streaming networks.
    depthwise += [
        depthwise_conv2d_graph(taps, width, channels, (taps, width), activation=activation)
        for taps, width, channels, activation in (
            (5, 1, 16, None),
            (9, 1, 40, RELU6),
            (13, 1, 48, None),
            (21, 1, 64, None),
            (4, 3, 24, RELU6),
            (7, 7, 32, None),
        )
    ]
    dense = [
        fully_connected_graph(depth, units, batch=batch, activation=activation)
        for depth, units, batch, activation in (
            (32, 10, 1, None),
            (256, 64, 1, RELU6),
            (401, 33, 1, None),
            (16, 1, 1, None),
            (7, 3, 1, RELU6),
            (64, 128, 1, None),
            (40, 8, 6, None),
            (19, 21, 9, RELU6),
            (600, 4, 1, None),
            (128, 50, 1, None),
            (64, 32, 2, None),
            (25, 12, 4, RELU6),
            (144, 10, 12, None),
            (30, 16, 3, None),
            (96, 40, 5, None),
            (512, 8, 2, RELU6),
            (11, 5, 16, None),
            (1024, 16, 1, None),
            (640, 128, 1, RELU6),
            (128, 640, 1, None),
        )
    ]
    transposed = [
        _transposed(*size)
        for size in (
            (4, 5, 5, 6, 4),
            (3, 8, 8, 4, 3),
            (6, 6, 3, 9, 4),
            (5, 4, 16, 8, 4),
            (8, 8, 4, 4, 2),
            (4, 4, 24, 12, 3),
            (2, 9, 7, 5, 2),
        )
    ]
    for graph in (*convolutions, *depthwise, *dense, *transposed):
        yield from (graph, as_float(graph), as_int16(graph), as_halves(graph))
    yield from (as_float16(g) for g in (*convolutions, *depthwise, *dense) if not g.nodes[0].epilogue)
    # Weights of 4 bits.
    for height, width, channels, filters, size in (
        (7, 6, 8, 8, (3, 3)),
        (9, 12, 4, 26, (3, 3)),
        (8, 8, 32, 16, (1, 1)),
        (5, 7, 19, 9, (1, 1)),
        (6, 6, 12, 30, (5, 2)),
        (12, 12, 16, 24, (3, 3)),
        (3, 3, 3, 4, (2, 2)),
        (10, 3, 64, 7, (1, 1)),
    ):
        yield conv2d_graph(height, width, channels, filters, size, largest=7)
    for depth, units, batch in (
        (32, 10, 1),
        (256, 64, 1),
        (401, 33, 1),
        (16, 4, 1),
        (130, 22, 2),
        (64, 99, 1),
    ):
        yield fully_connected_graph(depth, units, batch=batch, largest=7)
        for density in (0.05, 0.3):
            graph = fully_connected_graph(depth, units, batch=batch)
            yield from (prune(graph, density), prune(as_float(graph), density))


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


def _transposed(height: int, width: int, channels: int, filters: int, size: int) -> Graph:
    rng = np.random.default_rng(0)
    shape = (filters, size, size, channels)
    weights = Value("weights", TensorType(DType.INT8, shape, Quant.per_tensor(0.01)))
    bias = Value("bias", TensorType(DType.INT32, (filters,)))
    constants = {
        weights: rng.integers(-128, 128, shape).astype(np.int8),
        bias: rng.integers(-900, 900, filters).astype(np.int32),
    }
    op = TransposeConv2D((2, 2), (1, 1), (2 * height, 2 * width), element(DType.INT8))
    return one_node_graph(op, [int8_input("x", (1, height, width, channels))], constants)


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


def _deep() -> Iterator[Graph]:
    """Convolutions that sum many products: there, nothing but the innermost loop counts."""
    relu = {"activation": RELU, "out": int8_element(0.05, -128)}
    for height, channels, filters, size, stride in (
        (8, 64, 64, 3, 1),
        (16, 32, 64, 3, 2),
        (12, 32, 32, 3, 1),
        (16, 16, 32, 3, 1),
        (10, 48, 24, 3, 1),
        (6, 128, 128, 1, 1),
        (12, 96, 24, 1, 1),
        (5, 256, 64, 1, 1),
    ):
        padding = SAME if size == 3 else NO_PADDING
        for more in ({}, relu):
            yield conv2d_graph(
                height,
                height,
                channels,
                filters,
                (size, size),
                strides=(stride, stride),
                padding=padding,
                **more,
            )


def _cut_at_zero() -> Iterator[Graph]:
    """Arithmetic of floats with a lower limit alone."""
    for image in IMAGES[::2]:
        x = _value(DType.FLOAT32, image)
        for kind in (Add, Sub, Mul, SquaredDifference):
            for shape in (image, image[3:]):
                y = _value(DType.FLOAT32, shape, "y")
                yield one_node_graph(kind(element(DType.FLOAT32)), [x, y], {}, RELU)


def _beside() -> Iterator[Graph]:
    """Depthwise layers whose sums can be made beside the requantisation, and such that tiles do not fill."""
    relu = {"activation": RELU, "out": int8_element(0.05, -128)}
    for height, width, channels, size, stride in (
        (25, 5, 64, (3, 3), 1),
        (12, 6, 48, (3, 3), 1),
        (8, 8, 32, (3, 3), 1),
        (24, 24, 16, (3, 3), 1),
        (7, 7, 20, (3, 3), 1),
        (5, 9, 128, (3, 3), 1),
        (14, 14, 24, (3, 3), 2),
        (9, 12, 64, (3, 3), 2),
        (10, 7, 40, (2, 2), 1),
        (6, 11, 36, (2, 3), 1),
        (16, 4, 72, (4, 3), 1),
        (20, 15, 8, (3, 3), 1),
        (3, 3, 256, (3, 3), 1),
        (30, 31, 12, (3, 3), 1),
        (13, 1, 64, (3, 1), 1),
        (4, 4, 16, (3, 3), 1),
        (4, 5, 8, (3, 3), 1),
        (2, 6, 12, (3, 3), 1),
        (6, 2, 32, (3, 3), 1),
        (2, 3, 4, (3, 3), 1),
    ):
        padding = SAME if size == (3, 3) else NO_PADDING
        for more in (relu, {}) if width % 2 else (relu,):
            yield depthwise_conv2d_graph(
                height, width, channels, size, strides=(stride, stride), padding=padding, **more
            )


def _residuals() -> Iterator[Graph]:
    """Convolutions that add a second tensor: few products, and many, for each block of outputs."""
    for height, width, channels, filters, size, stride in (
        (12, 12, 16, 32, 3, 1),
        (16, 16, 8, 32, 1, 1),
        (8, 8, 24, 64, 3, 1),
        (7, 7, 24, 96, 1, 1),
        (14, 14, 4, 6, 3, 1),
        (9, 9, 8, 24, 1, 1),
        (16, 16, 16, 16, 3, 1),
        (6, 8, 32, 10, 1, 1),
        (10, 5, 12, 7, 3, 1),
        (5, 5, 40, 33, 1, 1),
        (12, 12, 8, 12, 3, 2),
        (8, 8, 32, 16, 1, 1),
        (20, 12, 4, 8, 3, 1),
        (11, 11, 4, 40, 1, 1),
    ):
        choices = {"kernel": (size, size), "strides": (stride, stride)}
        choices |= {"padding": SAME if size == 3 else NO_PADDING}
        for activation in (None, RELU):
            yield residual_graph((height, width, channels, filters), choices, activation=activation)


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


SEQUENCES = (
    Sequence(batch=2, steps=4, inputs=8, units=3),
    Sequence(steps=2, inputs=1, units=1),
    Sequence(steps=5, inputs=7, units=10),
    Sequence(steps=3, inputs=20, units=33),
    Sequence(steps=2, inputs=64, units=16),
    Sequence(steps=8, inputs=4, units=24),
    Sequence(batch=3, steps=3, inputs=12, units=12),
    Sequence(steps=6, inputs=40, units=9),
    Sequence(steps=12, inputs=3, units=5),
    Sequence(steps=2, inputs=30, units=48),
)


# Inputs, units, rank and steps of SVDF.
MORE_FILTERS = ((24, 20, 1, 5), (9, 6, 3, 12), (33, 40, 2, 2), (128, 10, 1, 20))


def _cells() -> Iterator[Graph]:
    """Each graph has states of its own."""
    for index, size in enumerate(SEQUENCES):
        for kind in ("i1", "i2", "lstm", "rnn"):
            writer, rng = Writer(), np.random.default_rng(index)
            if kind == "lstm":
                float_lstm(writer, rng, size, Parts(peephole=index % 2 == 1))
            elif kind == "rnn":
                float_rnn(writer, rng, size, "TANH" if index % 2 else "RELU")
            else:
                integer_lstm(writer, rng, size, kind)
            yield import_model(writer.pack())
        parts = Parts(index % 2 == 1, index % 3 == 1, min(index, size.units) * (index % 4 > 1), index % 5 < 2)
        writer, rng = Writer(), np.random.default_rng(index)
        lstm_8x8_16(writer, rng, size, parts if parts != Parts() else Parts(peephole=True))
        yield import_model(writer.pack())
    for inputs, units, rank, steps in (
        (5, 3, 2, 4),
        (16, 8, 1, 8),
        (40, 12, 2, 10),
        (64, 32, 4, 3),
        *MORE_FILTERS,
    ):
        yield from (_svdf(dtype, inputs, units, rank, steps) for dtype in (DType.INT8, DType.FLOAT32))


def _svdf(dtype: DType, inputs: int, units: int, rank: int, steps: int) -> Graph:
    rng, integers = np.random.default_rng(0), dtype is DType.INT8
    wide, bias_type = (DType.INT16, DType.INT32) if integers else (dtype, dtype)

    def value(name: str, kind: DType, shape: Shape, scale: float) -> Value:
        return Value(name, TensorType(kind, shape, Quant.per_tensor(scale) if integers else None))

    filters = units * rank
    x = value("x", dtype, (1, inputs), 0.05)
    feature = value("feature", dtype, (filters, inputs), 0.02)
    time = value("time", wide, (filters, steps), 0.001)
    bias = value("bias", bias_type, (units,), 0.001)
    state = value("state", wide, (1, filters * steps), 0.004)
    constants = {
        v: rng.integers(-100, 100, v.type.shape).astype(v.type.dtype.numpy) for v in (feature, time, bias)
    }
    op = Svdf(rank, element(dtype))
    node = make_node(op, [x, feature, time, bias, state], ["out", "next"])
    initial = np.zeros(state.type.shape, wide.numpy)
    states = (State(state, initial, node.outputs[1]),)
    return Graph("net", (x,), node.outputs[:1], (node,), constants, states)
