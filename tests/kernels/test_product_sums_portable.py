"""Convolutions and fully connected layers in portable C: int8, int16 and float32."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import DType, Quant, TensorType
from microfold.kernels.packing.product_sum import interleave_channels
from microfold.ops.fully_connected.fully_connected import FullyConnected
from tests.kernels import graphs
from tests.kernels.portable import CORES, as_float, as_int16, as_int16_in_32_bits, check, check_all
from tests.needs import CROSS_TOOLS
from tests.sampling import sampled

SAME3 = ((1, 1), (1, 1))
LOW = graphs.int8_element(0.05, -128)

CONVOLUTIONS = {
    "3x3": graphs.conv2d_graph(6, 7, 4, 8, padding=SAME3, activation=graphs.RELU, out=LOW),
    "odd channels": graphs.conv2d_graph(5, 5, 3, 5, padding=((0, 1), (1, 0)), activation=graphs.RELU6),
    "one channel": graphs.conv2d_graph(7, 6, 1, 1, (5, 5), padding=((2, 2), (2, 2))),
    "10x4": graphs.conv2d_graph(19, 6, 1, 6, (10, 4), strides=(2, 2), padding=((4, 5), (1, 1))),
    "7x1": graphs.conv2d_graph(12, 3, 2, 3, (7, 1), strides=(3, 1)),
    "1x7": graphs.conv2d_graph(3, 12, 2, 3, (1, 7), padding=((0, 0), (3, 3))),
    "dilated": graphs.conv2d_graph(11, 11, 3, 4, dilations=(3, 2), padding=((3, 3), (2, 2))),
    "dilated rows": graphs.conv2d_graph(11, 5, 3, 4, dilations=(3, 1), padding=((3, 3), (1, 1))),
    "padding beyond the window": graphs.conv2d_graph(2, 2, 3, 4, padding=((4, 4), (4, 4))),
    "batch 2": graphs.conv2d_graph(3, 3, 5, 3, padding=SAME3, batch=2),
    "1x1": graphs.conv2d_graph(4, 5, 8, 6, (1, 1), activation=graphs.RELU),
    "1x1 odd": graphs.conv2d_graph(3, 3, 7, 5, (1, 1), batch=3),
    "1x1 stride": graphs.conv2d_graph(5, 5, 4, 4, (1, 1), strides=(2, 2)),
    "no bias, per tensor": graphs.conv2d_graph(4, 4, 4, 4, bias=False, per_channel=False),
    "saturated": graphs.conv2d_graph(5, 5, 16, 4, padding=SAME3, saturated=True),
    "large multipliers": graphs.conv2d_graph(4, 4, 2, 4, out=graphs.int8_element(0.0001, 7)),
    "tiny multipliers": graphs.conv2d_graph(4, 4, 2, 4, out=graphs.int8_element(1e6, -7)),
}
DEPTHWISE = {
    "3x3": graphs.depthwise_conv2d_graph(6, 7, 8, padding=SAME3, activation=graphs.RELU, out=LOW),
    "odd": graphs.depthwise_conv2d_graph(5, 6, 3, padding=((0, 1), (0, 1)), strides=(2, 2)),
    "multiplier": graphs.depthwise_conv2d_graph(
        5, 5, 2, multiplier=3, padding=SAME3, activation=graphs.RELU6
    ),
    "one channel": graphs.depthwise_conv2d_graph(5, 1, 1, (3, 1)),
    "column": graphs.depthwise_conv2d_graph(30, 1, 5, (10, 1), strides=(1, 1)),
    "column, padded": graphs.depthwise_conv2d_graph(
        15, 1, 5, (5, 1), padding=((2, 2), (0, 0)), strides=(2, 1)
    ),
    "1x7": graphs.depthwise_conv2d_graph(2, 13, 4, (1, 7), padding=((0, 0), (3, 3))),
    "5x5": graphs.depthwise_conv2d_graph(7, 9, 3, (5, 5), padding=((2, 2), (2, 2))),
    "dilated": graphs.depthwise_conv2d_graph(9, 11, 3, dilations=(2, 3), padding=((2, 2), (3, 3))),
    "batch 2": graphs.depthwise_conv2d_graph(4, 5, 3, padding=SAME3, batch=2),
    "growing": graphs.depthwise_conv2d_graph(2, 2, 3, padding=((2, 2), (2, 2)), batch=2),
    "rows unread": graphs.depthwise_conv2d_graph(8, 8, 2, strides=(3, 3)),
    "saturated": graphs.depthwise_conv2d_graph(6, 6, 4, saturated=True, per_channel=False, bias=False),
}
DENSE = {
    "odd": graphs.fully_connected_graph(13, 7, batch=3),
    "one unit": graphs.fully_connected_graph(20, 1),
    "two units": graphs.fully_connected_graph(6, 2, activation=graphs.RELU, out=LOW),
    "per channel": graphs.fully_connected_graph(16, 12, per_channel=True, activation=graphs.RELU6),
    "one input": graphs.fully_connected_graph(1, 5),
    "no bias": graphs.fully_connected_graph(8, 8, bias=False, saturated=True),
}
GRAPHS = {
    f"{family} {name}": graph
    for family, table in (("conv", CONVOLUTIONS), ("depthwise", DEPTHWISE), ("dense", DENSE))
    for name, graph in table.items()
}


def _weights_with_a_zero_point(zero_point: int) -> Graph:
    rng = np.random.default_rng(0)
    x = graphs.int8_input("x", (2, 21))
    weights = Value("weights", TensorType(DType.INT8, (6, 21), Quant.per_tensor(0.01, zero_point)))
    array = rng.integers(-128, 127, (6, 21), endpoint=True).astype(np.int8)
    return graphs.one_node_graph(FullyConnected(graphs.int8_element()), [x], {weights: array})


INT8 = GRAPHS | {f"zero point {point}": _weights_with_a_zero_point(point) for point in (-7, 100)}


def test_int8() -> None:
    check_all(INT8)


def test_int16() -> None:
    check_all({name: as_int16(graph) for name, graph in GRAPHS.items()})


def test_int16_in_32_bits() -> None:
    wrapping = {"wrapping": graphs.fully_connected_graph(1301, 3, saturated=True)}
    for graphs_of_family in (CONVOLUTIONS, DEPTHWISE, DENSE | wrapping):
        check_all(as_int16_in_32_bits(graphs_of_family))


def test_float() -> None:
    check_all({name: as_float(graph) for name, graph in GRAPHS.items()})


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(CORES, 2))
def test_int8_on_cores(core: str) -> None:
    check_all(INT8, core)


def test_accumulators_that_might_overflow_are_refused_with_a_weight_zero_point() -> None:
    x = graphs.int8_input("x", (1, 4))
    weights = Value("weights", TensorType(DType.INT8, (1, 4), Quant.per_tensor(0.01, 5)))
    bias = Value("bias", TensorType(DType.INT32, (1,)))
    constants = {weights: np.full((1, 4), 127, np.int8), bias: np.array([(1 << 31) - 1], np.int32)}
    graph = graphs.one_node_graph(FullyConnected(graphs.int8_element()), [x], constants)
    with pytest.raises(UnsupportedModelError, match="accumulators might overflow"):
        compile_graph(graph, target.load("host"))


def test_interleaving_keeps_every_weight() -> None:
    matrix = np.arange(15).reshape(5, 3)
    packed = interleave_channels(matrix, 2)
    assert packed.shape == (3, 3, 2)
    assert np.array_equal(packed.swapaxes(1, 2).reshape(6, 3)[:5], matrix)
    assert not packed[2, :, 1].any()


@pytest.mark.parametrize("shape", [(4, 5, 8), (6, 6, 3)])
def test_layers_compute_over_their_dying_input(shape: tuple[int, int, int]) -> None:
    """Depthwise layers run in place; their arena is hardly larger than one tensor."""
    height, width, channels = shape
    program = check(graphs.depthwise_conv2d_graph(height, width, channels, padding=SAME3))
    tensor, plane = height * width * channels, (height + 2) * (width + 4)
    assert program.arena.size <= tensor + plane + 16
