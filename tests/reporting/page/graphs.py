"""Graphs to draw."""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value, make_node
from microfold.ir.types import DType, Quant, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.movement.reshape import Reshape
from tests.codegen.graphs import Builder
from tests.kernels.graphs import NO_PADDING, RELU, int8_element, int8_input


def inverted_residuals(blocks: int, size: int = 48) -> Graph:
    """A network like MobileNetV2: blocks of an expanding, a depthwise and a projecting convolution.

    Every third block halves the image; the others add what they are given to their result.

    Args:
        size: of the image.
    """
    b = Builder(5)
    x = int8_input("image", (1, size, size, 3))
    nodes: list[Node] = [_conv(b, x, 8, "stem", relu=True)]
    channels = 8
    for i in range(blocks):
        given = nodes[-1].output
        halve = i % 3 == 2 and given.type.shape[1] >= 6
        if halve:
            channels += 8
        nodes.append(_conv(b, given, 3 * given.type.shape[3], f"block_{i}/expand", relu=True))
        nodes.append(_depthwise(b, nodes[-1].output, 2 if halve else 1, f"block_{i}/depthwise"))
        nodes.append(_conv(b, nodes[-1].output, channels, f"block_{i}/project", relu=False))
        if not halve:
            nodes.append(make_node(Add(int8_element()), [given, nodes[-1].output], [f"block_{i}/add"]))
    last = nodes[-1].output.type.shape
    nodes.append(make_node(Reshape((1, last[1] * last[2] * last[3])), [nodes[-1].output], ["flat"]))
    nodes.append(b.dense(nodes[-1].output, 10, "logits"))
    return b.graph("inverted_residuals", [x], [nodes[-1].output], nodes)


def _conv(b: Builder, x: Value, filters: int, name: str, *, relu: bool) -> Node:
    inputs = [x, b.weights(f"{name}/w", (filters, 1, 1, x.type.shape[3])), b.bias(f"{name}/b", filters)]
    op = Conv2D((1, 1), (1, 1), NO_PADDING, int8_element())
    return make_node(op, inputs, [name], [EpilogueStep(RELU)] if relu else [])


def _depthwise(b: Builder, x: Value, stride: int, name: str) -> Node:
    channels = x.type.shape[3]
    weights = Value(f"{name}/w", TensorType(DType.INT8, (1, 3, 3, channels), Quant.per_tensor(0.01, 0)))
    b.constants[weights] = b.rng.integers(-127, 128, (1, 3, 3, channels)).astype("int8")
    op = DepthwiseConv2D((stride, stride), (1, 1), ((1, 1), (1, 1)), int8_element())
    return make_node(op, [x, weights, b.bias(f"{name}/b", channels)], [name], [EpilogueStep(RELU)])
