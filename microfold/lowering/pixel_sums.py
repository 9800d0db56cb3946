"""Global pooling for streaming: a sum that receives one row after the other, and a mean of the sum."""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import DType, ElementType
from microfold.kernels.layer import LayerContext
from microfold.kernels.pool2d.portable import AveragePool2DFloat, AveragePool2DInt8, AveragePool2DInt16
from microfold.ops.pool2d import AveragePool2D
from microfold.ops.reduce.pixel_sums import MeanOfSums, PixelSums

# Pooling kernels, which decide whether an epilogue can be computed.
_POOLS = {
    kernel.dtype: kernel for kernel in (AveragePool2DInt8(), AveragePool2DInt16(), AveragePool2DFloat())
}
# Maximum number of int16 pixels whose sum fits int32.
_MOST_INT16 = (1 << 16) - 1


def means_of_sums(layer: LayerContext) -> tuple[Node, Node] | None:
    """Return the nodes for the sums and the means of a global pool; None if the layer is no global pool."""
    node = layer.node
    op = node.op
    if not isinstance(op, AveragePool2D):
        return None
    x, output = node.operands[0], node.output
    pool = _POOLS.get(x.type.dtype)
    if pool is None or pool.supports(layer) is not None:
        return None
    if op.size != x.type.shape[1:3] or op.padding != ((0, 0), (0, 0)) or output.type.shape[:3] != (1, 1, 1):
        return None
    count = op.size[0] * op.size[1]
    if x.type.dtype is DType.INT16 and count > _MOST_INT16:
        return None
    sums = PixelSums()
    value = Value(f"{output.name}/sums", sums.infer(x.type))
    mean = MeanOfSums(count, ElementType(output.type.dtype, x.type.quant))
    return Node(sums, (x,), (value,)), Node(mean, (value,), (output,), node.epilogue)


def with_means_of_sums(graph: Graph, node: Node, parts: tuple[Node, Node]) -> Graph:
    """Return the graph with the pool replaced by the two nodes."""
    index = graph.nodes.index(node)
    return replace(graph, nodes=(*graph.nodes[:index], *parts, *graph.nodes[index + 1 :]))
