"""Stores only nonzero weight blocks of fully connected layers, if that is smaller.

    %y: int8[1,64] = fully_connected(%x, %w)    ->    %y: int8[1,64] = sparse_fully_connected(%x, %w)

A block is four adjacent inputs of a unit at any position. It needs one byte in addition to its weights. It
also needs more time than four products of a dense layer, whose kernels keep several units in registers.
Measured by simulation for int8, 1024 inputs, 64 units and aligned blocks, by the fraction of nonzero blocks:

                        flash    Cortex-M4    Cortex-M0+    Cortex-M55
    dense               66560        70439        323328         11688    instructions
    sparse, 10 %         9557        22105         54491         20614
    sparse, 25 %        21507        50785        126191         46904
    sparse, 50 %        42092       100189        249701         92191

By default a layer becomes sparse if it needs less flash and no more time, estimated for a Cortex-M4 (or for a
Cortex-M55 if channels are computed in blocks). Each unit has a fixed cost, so that short rows stay dense. A
larger `slowdown` trades time for flash. Pruning of single weights instead of blocks is less effective: 10 %
of the weights are then in about a third of the blocks.

A convolution with 1x1 filters is also such a layer, with pixels as rows. The sums are the same, so that
integers and finite floats keep their bits.
"""

from __future__ import annotations

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.layout import NHWC
from microfold.ir.node import Node
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.fully_connected.sparse_fully_connected import WIDTH, SparseFullyConnected, cover
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

# Element types of activations that sparse kernels support.
_DTYPES = (DType.INT8, DType.FLOAT32)


@function_pass(opt_level=3, name="dense_to_sparse")
class DenseToSparse(Struct, frozen=True):
    """Conversion of layers with many zero weights to sparse layers.

    Attributes:
        slowdown: maximum estimated time of the sparse layer, relative to the dense layer.
        block: instructions per 1x4 block of a sparse layer,
        unit: and per unit in addition to its blocks.
        dense: instructions for four products of a dense layer,
        dense_pixel: in a convolution, which computes several pixels at once,
        dense_vector: in both on a core with vectors (`PassContext.channel_block`),
        dense_unit: and per unit in addition.
    """

    slowdown: float = 1.0
    block: float = 12.0
    unit: float = 65.0
    dense: float = 4.3
    dense_pixel: float = 3.3
    dense_vector: float = 0.7
    dense_unit: float = 10.0

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        def why_not(node: Node, weights: TensorType, array: Array | None) -> tuple[str | None, str]:
            """Return why a layer stays dense (else None), and its gain."""
            if array is None:
                return "its weights are not constant", ""
            if node.output.type.dtype not in _DTYPES:
                return f"no kernel computes sparse layers of {node.output.type.dtype.value}", ""
            if weights.quant is not None and any(weights.quant.zero_points):
                return "the zero point of its weights is not 0", ""
            matrix = array.reshape(array.shape[0], -1)
            count, width = cover(matrix).weights.shape
            stored = count * (width * array.itemsize + 1) + 2 * array.shape[0]
            if stored >= array.nbytes:
                return f"its {count} blocks would need {stored} bytes; dense weights need {array.nbytes}", ""
            products = self.dense_pixel if isinstance(node.op, Conv2D) else self.dense
            if context.channel_block > 1:
                products = self.dense_vector
            now = products * array.size / WIDTH + self.dense_unit * array.shape[0]
            blocks = self.block * count + self.unit * array.shape[0]
            slower = blocks / now
            best = "dense" if slower > self.slowdown else "sparse"
            if context.choose(node, best, lambda: {"dense": now, "sparse": blocks}) == "dense":
                taken = f"would need about {slower:.1f} times as long"
                return f"its {count} blocks {taken if best == 'dense' else 'were measured to be slower'}", ""
            return None, f"{count} blocks of {stored} bytes instead of {array.nbytes}"

        def convert(site: RewriteSite[None]) -> Replacement:
            node, weights = site.node, site.value(1)
            assert weights is not None
            # Its subclass is already sparse.
            if type(node.op) is SparseFullyConnected or not _is_matrix_product(node):
                return None
            reason, gain = why_not(node, weights.type, site.array(node.inputs[1]))
            if reason is not None:
                context.declined(node, reason)
                return None
            context.fired(node, gain)
            return _pixels(site) if isinstance(node.op, Conv2D) else _layer(site)

        return forward_rewrite(graph, {FullyConnected: convert, Conv2D: convert})


def _is_matrix_product(node: Node) -> bool:
    """Return whether a node is a fully connected layer, or a convolution that is one for every pixel."""
    op = node.op
    if not isinstance(op, Conv2D):
        return True
    image, filters = node.operands[0].type, node.operands[1].type
    return (
        op.layout == NHWC
        and filters.shape[1:] == (1, 1, image.shape[3])
        and op.strides == (1, 1)
        and op.padding == ((0, 0), (0, 0))
    )


def _layer(site: RewriteSite[None]) -> Replacement:
    assert isinstance(site.node.op, FullyConnected)
    operands = [site.value(index) for index in range(len(site.node.inputs))]
    return site.emit(SparseFullyConnected(site.node.op.out), *operands, epilogue=site.epilogue)


def _pixels(site: RewriteSite[None]) -> Replacement:
    """Convert a 1x1 convolution to a layer whose rows are the pixels."""
    node, image, filters = site.node, site.value(0), site.value(1)
    assert isinstance(node.op, Conv2D)
    assert image is not None
    assert filters is not None
    units, _, _, depth = filters.type.shape
    matrix = site.builder.constants[filters].reshape(units, depth)
    weights = site.builder.constant(matrix, filters.type.with_shape(matrix.shape), filters.name)
    name = node.output.name
    (rows,) = site.builder.emit(Reshape((image.type.size // depth, depth)), [image], [f"{name}_pixels"])
    rest = [site.value(index) for index in range(2, len(node.inputs))]
    op = SparseFullyConnected(node.op.out)
    (out,) = site.builder.emit(op, [rows, weights, *rest], [f"{name}_rows"], site.epilogue)
    return site.emit(Reshape(node.output.type.shape), out)
