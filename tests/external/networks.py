"""int8 layers that CMSIS-NN has functions for, as graphs that are not fused yet."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D

NONE = ((0, 0), (0, 0))
SAME = ((1, 1), (1, 1))
RELU = Clip(0.0, float("inf"))
RELU6 = Clip(0.0, 6.0)
OUT = ElementType(DType.INT8, Quant.per_tensor(0.3, -5))
PROBABILITIES = ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128))


class Network:
    """Layers side by side, each with inputs and outputs of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}

    def input(self, *shape: int, scale: float = 0.1, zero_point: int = 3) -> Value:
        type = TensorType(DType.INT8, shape, Quant.per_tensor(scale, zero_point))
        self.inputs.append(Value(f"x{len(self.inputs)}", type))
        return self.inputs[-1]

    def layer(self, op: Op, *operands: Value, clip: Clip | None = None) -> Network:
        """Append a layer."""
        name = f"y{len(self.outputs)}"
        self.nodes.append(make_node(op, operands, [name]))
        if clip is not None:
            self.nodes.append(make_node(clip, [self.nodes[-1].output], [f"{name}_clipped"]))
        self.outputs.append(self.nodes[-1].output)
        return self

    def weights(self, *shape: int, axis: int | None, bias: bool = True, zero_point: int = 0) -> list[Value]:
        """Filters with scales along `axis` or one for all, and a bias of as many as the axis has."""
        channels = shape[axis if axis is not None else 0]
        scales = self.rng.uniform(0.005, 0.05, channels if axis is not None else 1)
        quant = Quant(tuple(float(np.float32(s)) for s in scales), (zero_point,) * len(scales), axis)
        made = [Value("w", TensorType(DType.INT8, shape, quant))]
        self.constants[made[0]] = self.rng.integers(-128, 128, shape).astype(np.int8)
        if bias:
            made.append(Value("b", TensorType(DType.INT32, (channels,))))
            self.constants[made[1]] = self.rng.integers(-3000, 3000, channels).astype(np.int32)
        return made

    def graph(self) -> Graph:
        return Graph("net", tuple(self.inputs), tuple(self.outputs), tuple(self.nodes), self.constants)


def convolutions() -> Graph:
    net = Network()
    for height, width, channels, filters, kernel, strides, dilations, padding, clip in (
        (6, 7, 3, 5, (3, 3), (1, 1), (1, 1), SAME, RELU6),
        (8, 8, 1, 4, (3, 3), (2, 2), (1, 1), ((0, 1), (0, 1)), None),
        (5, 5, 6, 7, (1, 1), (1, 1), (1, 1), NONE, RELU),
        (5, 5, 6, 3, (1, 1), (2, 2), (1, 1), NONE, None),
        (9, 8, 4, 2, (3, 2), (1, 1), (2, 3), ((2, 2), (1, 2)), None),
        (1, 20, 4, 5, (1, 5), (1, 1), (1, 1), ((0, 0), (2, 2)), RELU),
        (1, 20, 4, 5, (1, 4), (1, 2), (1, 1), NONE, None),
    ):  # fmt: skip
        x = net.input(1, height, width, channels, zero_point=-128 if channels == 1 else 7)
        op = Conv2D(strides, dilations, padding, OUT)
        net.layer(op, x, *net.weights(filters, *kernel, channels, axis=0), clip=clip)
    op = Conv2D((1, 1), (1, 1), SAME, OUT)
    net.layer(op, net.input(2, 4, 4, 3), *net.weights(5, 3, 3, 3, axis=None, bias=False))
    for height, channels, multiplier, kernel, strides, padding, clip in (
        (6, 5, 1, 3, (1, 1), SAME, RELU6),
        (7, 4, 1, 5, (2, 2), ((2, 2), (2, 2)), None),
        (6, 3, 2, 3, (2, 2), ((0, 1), (0, 1)), RELU),
        (6, 1, 4, 3, (1, 1), SAME, None),
    ):
        x = net.input(1, height, height, channels)
        filters = net.weights(1, kernel, kernel, channels * multiplier, axis=3)
        net.layer(DepthwiseConv2D(strides, (1, 1), padding, OUT), x, *filters, clip=clip)
    return net.graph()


def others() -> Graph:
    net = Network()
    for batch, inputs, outputs, axis, bias, clip in (
        (1, 16, 10, 0, True, None),
        (3, 13, 7, None, True, RELU6),
        (1, 5, 1, None, False, None),
    ):
        weights = net.weights(outputs, inputs, axis=axis, bias=bias)
        net.layer(FullyConnected(OUT), net.input(batch, inputs), *weights, clip=clip)
    for kind in (AveragePool2D, MaxPool2D):
        net.layer(kind((2, 2), (2, 2), NONE), net.input(2, 6, 6, 5))
        net.layer(kind((3, 3), (1, 1), SAME), net.input(1, 5, 4, 3, zero_point=-20), clip=RELU)
    net.layer(Add(OUT), net.input(1, 3, 3, 3), net.input(1, 3, 3, 3, scale=0.05, zero_point=-90), clip=RELU)
    twice = net.input(2, 9)
    net.layer(Add(OUT), twice, twice)
    net.layer(Softmax(1.0, PROBABILITIES), net.input(3, 8))
    net.layer(Softmax(0.5, PROBABILITIES), net.input(1, 300, scale=0.02))
    return net.graph()


def refused() -> Mapping[str, tuple[Graph, str]]:
    """What CMSIS-NN's functions would compute wrongly, or not at all, with the words that say so."""

    def conv(x: tuple[int, ...], kernel: tuple[int, ...], op: Conv2D | DepthwiseConv2D) -> Graph:
        net = Network()
        return net.layer(op, net.input(*x), *net.weights(*kernel, axis=3 if kernel[0] == 1 else 0)).graph()

    def plain(padding: object, strides: tuple[int, int] = (1, 1)) -> Conv2D:
        return Conv2D(strides, (1, 1), padding, OUT)  # type: ignore[arg-type]

    right = ((0, 0), (0, 1))
    offset, broadcast = Network(), Network()
    return {
        "padded point": (conv((1, 4, 4, 3), (5, 1, 1, 3), plain(right)), "must have no padding"),
        "row padded on the right": (conv((1, 1, 9, 4), (5, 1, 3, 4), plain(right)), "SAME padding"),
        "padded row in steps": (
            conv((1, 1, 9, 4), (5, 1, 3, 4), plain(((0, 0), (1, 1)), (1, 2))), "stride 1"
        ),
        "unused end of a row": (conv((1, 1, 10, 4), (5, 1, 3, 4), plain(NONE, (1, 2))), "used to its end"),
        "depthwise batch": (
            conv((2, 4, 4, 3), (1, 3, 3, 3), DepthwiseConv2D((1, 1), (1, 1), SAME, OUT)), "batch size must"
        ),
        "depthwise dilation": (
            conv((1, 8, 8, 3), (1, 3, 3, 3), DepthwiseConv2D((1, 1), (2, 2), NONE, OUT)), "dilation must be"
        ),
        "offset of weights": (
            offset.layer(
                FullyConnected(OUT), offset.input(1, 4), *offset.weights(3, 4, axis=None, zero_point=5)
            ).graph(),
            "zero point 0",
        ),
        "broadcast": (
            broadcast.layer(Add(OUT), broadcast.input(1, 4), broadcast.input(3, 1)).graph(),
            "shapes must be equal",
        ),
    }  # fmt: skip
