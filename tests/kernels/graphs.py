"""One-operator graphs with random constants, for kernel tests."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.fully_connected.fully_connected import FullyConnected

NO_PADDING = ((0, 0), (0, 0))
RELU6 = Clip(0.0, 6.0)
RELU = Clip(0.0, float("inf"))


def int8_input(name: str, shape: tuple[int, ...], scale: float = 0.1, zero_point: int = 3) -> Value:
    return Value(name, TensorType(DType.INT8, shape, Quant.per_tensor(scale, zero_point)))


def float_input(name: str, shape: tuple[int, ...]) -> Value:
    return Value(name, TensorType(DType.FLOAT32, shape))


def int8_element(scale: float = 0.05, zero_point: int = -5) -> ElementType:
    return ElementType(DType.INT8, Quant.per_tensor(scale, zero_point))


def one_node_graph(
    op: Op, inputs: list[Value], constants: dict[Value, Array], activation: Clip | None = None
) -> Graph:
    """The graph of a single node, which may read an input twice; `activation` is fused into its epilogue."""
    steps = (EpilogueStep(activation),) if activation is not None else ()
    operands = [*inputs, *constants]
    node: Node = make_node(op, operands, ["model/layer/out"], steps)
    return Graph("net", tuple(dict.fromkeys(inputs)), node.outputs, (node,), constants)


def _weights(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    axis: int | None,
    channels: int,
    saturated: bool,
    largest: int = 127,
) -> tuple[Value, Array, float]:
    depth = int(np.prod(shape)) // channels
    # Scales such that random accumulators fill the output's range.
    scale = 0.4 / np.sqrt(depth) / 64
    scales = rng.uniform(0.5, 1.5, channels if axis is not None else 1) * scale
    quant = Quant(tuple(float(np.float32(s)) for s in scales), (0,) * len(scales), axis)
    extremes = [-largest - 1, -largest, largest]
    array = rng.choice(extremes, shape) if saturated else rng.integers(-largest, largest + 1, shape)
    return Value("weights", TensorType(DType.INT8, shape, quant)), array.astype(np.int8), scale


def with_constant_channel(graph: Graph, channel: int) -> Graph:
    """The graph of a convolution or a fully connected layer; an output channel is the same for all inputs."""
    (node,) = graph.nodes
    weights = node.operands[1]
    array = np.array(graph.constants[weights])
    np.moveaxis(array, -1 if isinstance(node.op, DepthwiseConv2D) else 0, 0)[channel] = 0
    return replace(graph, constants={**graph.constants, weights: array})


def conv2d_graph(
    height: int,
    width: int,
    channels: int,
    filters: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = NO_PADDING,
    activation: Clip | None = None,
    batch: int = 1,
    per_channel: bool = True,
    bias: bool = True,
    out: ElementType | None = None,
    saturated: bool = False,
    largest: int = 127,
    seed: int = 0,
) -> Graph:
    """An int8 convolution with random weights (`saturated`: only extreme ones)."""
    rng = np.random.default_rng(seed)
    x = int8_input("x", (batch, height, width, channels))
    shape = (filters, *kernel, channels)
    weights, array, _ = _weights(rng, shape, 0 if per_channel else None, filters, saturated, largest)
    constants = {weights: array} | _bias(rng, filters, bias)
    return one_node_graph(
        Conv2D(strides, dilations, padding, out or int8_element()), [x], constants, activation
    )


def append_conv2d(
    graph: Graph, filters: int, kernel: tuple[int, int], *, strides: tuple[int, int] = (1, 1), seed: int = 1
) -> Graph:
    """The graph with another convolution behind its output."""
    rng = np.random.default_rng(seed)
    (x,) = graph.outputs
    weights, array, _ = _weights(rng, (filters, *kernel, x.type.shape[3]), 0, filters, False)
    constants = {
        Value(f"more_{v.name}", v.type): a for v, a in ({weights: array} | _bias(rng, filters, True)).items()
    }
    op = Conv2D(strides, (1, 1), NO_PADDING, int8_element())
    node = make_node(op, [x, *constants], ["model/more/out"])
    return Graph(
        graph.name, graph.inputs, node.outputs, (*graph.nodes, node), {**graph.constants, **constants}
    )


def depthwise_conv2d_graph(
    height: int,
    width: int,
    channels: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    multiplier: int = 1,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    padding: tuple[tuple[int, int], tuple[int, int]] = NO_PADDING,
    activation: Clip | None = None,
    batch: int = 1,
    per_channel: bool = True,
    bias: bool = True,
    out: ElementType | None = None,
    saturated: bool = False,
    largest: int = 127,
    seed: int = 0,
) -> Graph:
    """An int8 depthwise convolution with random weights."""
    rng = np.random.default_rng(seed)
    x = int8_input("x", (batch, height, width, channels))
    filters = channels * multiplier
    weights, array, _ = _weights(
        rng, (1, *kernel, filters), 3 if per_channel else None, filters, saturated, largest
    )
    constants = {weights: array} | _bias(rng, filters, bias)
    op = DepthwiseConv2D(strides, dilations, padding, out or int8_element())
    return one_node_graph(op, [x], constants, activation)


def fully_connected_graph(
    depth: int,
    units: int,
    *,
    batch: int = 1,
    activation: Clip | None = None,
    per_channel: bool = False,
    bias: bool = True,
    out: ElementType | None = None,
    saturated: bool = False,
    largest: int = 127,
    seed: int = 0,
) -> Graph:
    """An int8 fully connected layer with random weights."""
    rng = np.random.default_rng(seed)
    x = int8_input("x", (batch, depth))
    weights, array, _ = _weights(rng, (units, depth), 0 if per_channel else None, units, saturated, largest)
    constants = {weights: array} | _bias(rng, units, bias)
    return one_node_graph(FullyConnected(out or int8_element()), [x], constants, activation)


def _bias(rng: np.random.Generator, channels: int, present: bool) -> dict[Value, Array]:
    if not present:
        return {}
    array = rng.integers(-3000, 3000, channels).astype(np.int32)
    return {Value("bias", TensorType(DType.INT32, (channels,))): array}
