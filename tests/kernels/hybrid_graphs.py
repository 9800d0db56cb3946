"""Hybrid layers for kernel tests: weights and shapes of int8 layers, activations that are quantised first."""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize
from microfold.ops.fully_connected.blockwise_fully_connected import BlockwiseFullyConnected
from microfold.ops.fully_connected.hybrid_fully_connected import HybridFullyConnected


def as_hybrid(graph: Graph, *, asymmetric: bool = True) -> Graph:
    """The only layer of an int8 graph with float32 activations."""
    (node,) = graph.nodes
    weights, *others = graph.constants
    bias = graph.constants[others[0]] if others else np.zeros(node.output.type.shape[-1])
    return _hybrid_graph(
        _hybrid_op(node.op), node, {weights: graph.constants[weights]}, bias, asymmetric=asymmetric
    )


def as_blockwise(graph: Graph, length: int) -> Graph:
    """The same of a fully connected layer, whose weights get a scale for each `length` of them."""
    (node,) = graph.nodes
    weights = next(iter(graph.constants))
    array = graph.constants[weights]
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.001, 0.01, (array.shape[0], array.shape[1] // length)).astype(np.float32)
    factors = Value("factors", TensorType(DType.FLOAT32, scales.shape))
    plain = {Value("weights", TensorType(DType.INT8, array.shape)): array}
    bias = rng.standard_normal(array.shape[0])
    return _hybrid_graph(
        BlockwiseFullyConnected(length), node, plain, bias, asymmetric=True, more={factors: scales}
    )


def _hybrid_op(op: Op) -> Op:
    if isinstance(op, Conv2D):
        return HybridConv2D(op.strides, op.dilations, op.padding)
    if isinstance(op, DepthwiseConv2D):
        return HybridDepthwiseConv2D(op.strides, op.dilations, op.padding)
    return HybridFullyConnected()


def _hybrid_graph(
    op: Op,
    layer: Node,
    weights: dict[Value, Array],
    bias: Array,
    *,
    asymmetric: bool,
    more: dict[Value, Array] | None = None,
) -> Graph:
    x = Value("x", TensorType(DType.FLOAT32, layer.operands[0].type.shape))
    quantize = make_node(DynamicQuantize(asymmetric), [x], ["values", "steps"])
    biases = {Value("bias", TensorType(DType.FLOAT32, bias.shape)): (bias * 1e-3).astype(np.float32)}
    values, steps = quantize.outputs
    operands = [values, *weights, *biases, steps, *(more or {})]
    product = make_node(op, operands, [layer.output.name], layer.epilogue)
    constants = {**weights, **biases, **(more or {})}
    return Graph("net", (x,), product.outputs, (quantize, product), constants)
