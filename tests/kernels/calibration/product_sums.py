"""Layers to measure that are sums of products: convolutions, depthwise ones and fully connected ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import DType, Quant, TensorType
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from tests.kernels.conv2d.test_residual import residual_graph
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
from tests.kernels.packing.test_float16 import as_float16
from tests.kernels.packing.test_float16_weights import as_halves
from tests.kernels.portable import as_float, as_int16
from tests.kernels.row_cases import element

SAME = ((1, 1), (1, 1))


def product_sums() -> Iterator[Graph]:
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


def deep() -> Iterator[Graph]:
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


def beside() -> Iterator[Graph]:
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


def residuals() -> Iterator[Graph]:
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
