"""Stores fully connected layers by the blocks of their weights that are not zero, where that is smaller.

    %y: int8[1,64] = fully_connected(%x, %w)    ->    %y: int8[1,64] = sparse_fully_connected(%x, %w)

A block is four neighbouring inputs of a unit, wherever it begins. It takes a byte besides its weights, and
more time than four products of a dense layer, for which kernels keep several units in registers. Measured
by simulation, int8, 1024 inputs, 64 units, aligned blocks of which so many are not zero:

                        flash    Cortex-M4    Cortex-M0+    Cortex-M55
    dense               66560        70439        323328         11688    instructions
    sparse, 10 %         9557        22105         54491         20614
    sparse, 25 %        21507        50785        126191         46904
    sparse, 50 %        42092       100189        249701         92191

By default a layer becomes sparse if it takes less flash and, by figures of a Cortex-M4 (or a Cortex-M55,
where channels are computed in blocks), no more time; each unit costs, so that short rows stay dense. Who
needs the flash allows for a `slowdown`. Where single weights were pruned, not blocks, a tenth of the
weights is in a third of the blocks.

A convolution with 1x1 filters is such a layer, too, with pixels as rows. Sums are the same: integers keep
their bits, and so do finite floats.
"""

from __future__ import annotations

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
from microfold.support.frozen import frozen

# Element types of activations that kernels compute.
_DTYPES = (DType.INT8, DType.FLOAT32)


@function_pass(opt_level=3, name="dense_to_sparse")
@frozen
class DenseToSparse:
    """Tell kernels of layers with many zero weights to leave them out.

    Attributes:
        slowdown: how many times as long as the dense layer the sparse one may take, by estimate.
        block: instructions that a block of 1x4 takes in a sparse layer,
        unit: and a unit besides its blocks.
        dense: instructions that four products take in a dense layer,
        dense_pixel: in a convolution, which computes several pixels at once,
        dense_vector: in either on a core with vectors (`PassContext.channel_block`),
        dense_unit: and a unit besides them.
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
            """Why a layer stays dense, or what it gains."""
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
                return f"its {count} blocks would take {stored} bytes, it takes {array.nbytes}", ""
            products = self.dense_pixel if isinstance(node.op, Conv2D) else self.dense
            if context.channel_block > 1:
                products = self.dense_vector
            now = products * array.size / WIDTH + self.dense_unit * array.shape[0]
            blocks = self.block * count + self.unit * array.shape[0]
            slower = blocks / now
            best = "dense" if slower > self.slowdown else "sparse"
            if context.choose(node, best, lambda: {"dense": now, "sparse": blocks}) == "dense":
                taken = f"would take about {slower:.1f} times as long"
                return f"its {count} blocks {taken if best == 'dense' else 'were measured to be slower'}", ""
            return None, f"{count} blocks of {stored} bytes in place of {array.nbytes}"

        def convert(site: RewriteSite[None]) -> Replacement:
            node, weights = site.node, site.value(1)
            assert weights is not None
            # Its subclass is sparse already.
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
    """A fully connected layer, or a convolution that is one of every pixel."""
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
    """A 1x1 convolution as a layer whose rows are the pixels."""
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
