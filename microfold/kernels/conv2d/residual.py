"""int8 convolution with a fused addition of another tensor, the residual.

    conv2d(%x, %w, %b) | add(%residual) | clip()

The result of the convolution is never a tensor. A convolution kernel computes some pixels at a time into a
block of the scratch, and the loop of an addition kernel adds the block to the residual. Both use the code of
the separate layers, so that the results are bit-identical.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from microfold.ir.node import Node, Value, make_node
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.conv2d import dsp, dsp_tile, mve, packed_two_per_word, portable
from microfold.kernels.conv2d.portable import conv_types, is_pointwise
from microfold.kernels.conv2d.shared_conv_kernel import ByConvolution, register_by
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.add import AddInt8
from microfold.kernels.elementwise.add_linear import AddLinear
from microfold.kernels.elementwise.add_linear_dsp import AddLinearDsp
from microfold.kernels.elementwise.add_mve import AddMve
from microfold.kernels.elementwise.broadcast import BinaryKernel
from microfold.kernels.fields import Field, declare, inner_fields
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add

_SUMS: Sequence[BinaryKernel] = (AddMve(), AddLinearDsp(), AddLinear(), AddInt8())
# Maximum number of adjacent pixels that a convolution kernel writes together. Variants of `dsp.Conv2DDsp` may
# write fewer.
_BLOCK_PIXELS: Mapping[type[Kernel], int] = {
    portable.Conv2DInt8: portable.PatchConv.PIXELS,
    dsp.Conv2DDsp: dsp.PIXELS,
    dsp_tile.Conv2DTileDsp: dsp.PIXELS,
    mve.Conv2DMve: mve.Conv2DMve.PIXELS,
    packed_two_per_word.Conv2DThumb1: packed_two_per_word.PIXELS,
    packed_two_per_word.Conv2DThumb2: packed_two_per_word.PIXELS,
}


def find_sum(node: Node) -> int | str:
    """Return the index of the epilogue's step that adds the residual, or the reason why it has none."""
    others = [i for i, step in enumerate(node.epilogue) if not isinstance(step.op, Clip)]
    if len(others) != 1:
        return f"the epilogue must have one addition, and else only clips; {len(others)} steps are not clips"
    step = node.epilogue[others[0]]
    if not isinstance(step.op, Add):
        return f"it can only fuse an addition; the epilogue has {step.op.name}"
    (residual,) = step.operands
    if residual.type.shape != node.output.type.shape:
        return f"the residual must have the output's shape; it is {residual.type}"
    return others[0]


# The result is cached, because several kernels ask for it in `supports` and again in `variants`.
@lru_cache(maxsize=8)
def parts(layer: LayerContext) -> tuple[LayerContext, LayerContext]:
    """Return the convolution and the addition as separate layers, each with its clips."""
    node, where = layer.node, find_sum(layer.node)
    assert isinstance(where, int)
    names, step = [node.output.name], node.epilogue[where]
    convolution = make_node(node.op, node.inputs, names, node.epilogue[:where])
    total = make_node(step.op, [convolution.output, *step.operands], names, node.epilogue[where + 1 :])
    ranges = layer.ranges.moved(node, convolution) if layer.ranges is not None else None
    return replace(layer, node=convolution, ranges=ranges), replace(layer, node=total, ranges=None)


def _sum_kernel(total: LayerContext) -> BinaryKernel:
    """Return the addition kernel with the fewest cycles."""
    fitting = [k for k in _SUMS if k.features <= total.target.features and k.supports(total) is None]
    return min(fitting, key=lambda kernel: kernel.cycles(total))


def _whole_words(size: int) -> int:
    """Return a number of bytes rounded up to whole words, because loops load words."""
    return size + -size % 4


def _one_pixel(total: LayerContext) -> LayerContext:
    """Return the addition of one pixel, whose loop has the same code as one over several pixels.

    A pixel of one channel gets two, because one element would need no loop.
    """
    node = total.node
    shape = (1, 1, 1, max(node.output.type.shape[3], 2))
    operands = [Value(value.name, value.type.with_shape(shape)) for value in node.operands]
    return replace(total, node=make_node(node.op, operands, [node.output.name], node.epilogue))


class _ResidualConvolution(ByConvolution, frozen=True):
    """Base class of kernels that compute blocks of pixels by a convolution kernel, and add the residual.

    The convolution kernel computes all channels of some adjacent pixels together, see `_BLOCK_PIXELS`. The
    addition kernel is the one with the fewest cycles. Its loop reads the elements of a block and of the
    residual in order.
    """

    op = Conv2D
    own_fields = declare(
        Field("sum", "addition of the residual to a block of outputs"),
        Field("block", "offset of a block of outputs in the scratch"),
    )

    def convolved(self, layer: LayerContext) -> LayerContext:
        return parts(layer)[0]

    def is_for(self, node: Node) -> bool:
        return any(step.operands for step in node.epilogue)

    def supports(self, layer: LayerContext) -> str | None:
        found = find_sum(layer.node)
        if isinstance(found, str):
            return found
        convolution, total = parts(layer)
        types = [value.type for value in (*total.node.operands, total.node.output)]
        if any(t.dtype is not DType.INT8 for t in types):
            return f"it adds int8 values; they are {', '.join(t.dtype.value for t in types)}"
        if layer.array(self._residual(layer)) is not None:
            return "the residual must be computed, not constant"
        return self.convolution.supports(convolution)

    def beside(self, layer: LayerContext) -> Sequence[tuple[Kernel, LayerContext]]:
        total = parts(layer)[1]
        return [(_sum_kernel(total), total)]

    def terms(self, layer: LayerContext) -> Terms:
        blocks, channels = self._blocks(layer), layer.node.output.type.shape[3]
        rest = sum(times * (pixels * channels % AddLinearDsp.group) for pixels, times in blocks.items())
        return Terms(block=sum(blocks.values()), rest=rest)

    def _blocks(self, layer: LayerContext) -> Mapping[int, int]:
        """Return the number of blocks, by their number of pixels."""
        variant, shape = self._variant, layer.node.output.type.shape
        row, pixels = shape[2], shape[0] * shape[1] * shape[2]
        # Tiles end at the end of a row. The remaining pixels are one block, or separate blocks of one pixel.
        by_row = isinstance(variant, dsp_tile.Conv2DTileDsp)
        apart = by_row or (isinstance(variant, dsp.Conv2DDsp) and not is_pointwise(conv_types(layer)[3]))
        whole, left = divmod(row if by_row else pixels, self._pixels)
        blocks = Counter({self._pixels: whole})
        blocks[1 if apart else left] += left if apart else left > 0
        lines = pixels // row if by_row else 1
        return {n: lines * times for n, times in blocks.items() if times}

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return 0, self._residual(layer)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        convolution, total = parts(layer)
        if index == self._residual(layer):
            # Blocks are added in the order of their elements, like the complete tensor.
            return _sum_kernel(total).overlap(total, 1)
        return self._variant.overlap(convolution, index)

    def lower(self, layer: LayerContext) -> KernelCall:
        convolution, total = parts(layer)
        inner = self._variant.lower(convolution)
        addition = _sum_kernel(total).lower(_one_pixel(total))
        channels = layer.node.output.type.shape[3]
        block = _whole_words(inner.scratch)
        parameters: dict[str, Parameter] = {
            **inner.parameters,
            **{f"sum.{name}": value for name, value in addition.parameters.items()},
        }
        if inner.scratch:
            parameters["block"] = block
        spec = (
            *inner.function.spec,
            ("residual", addition.function.template),
            *((f"sum_{name}", value) for name, value in addition.function.spec),
        )
        fields = (*inner_fields("sum", addition.function.fields), *inner.function.fields, *self.own_fields)
        function = CFunction(inner.function.template, self.name, spec, fields)
        return KernelCall(function, parameters, block + _whole_words(self._pixels * channels))

    @property
    def _pixels(self) -> int:
        """Number of pixels of a block."""
        variant = self._variant
        return variant.group if isinstance(variant, dsp.Conv2DDsp) else _BLOCK_PIXELS[type(variant)]

    def _residual(self, layer: LayerContext) -> int:
        """Return the index of the node's argument that is the residual."""
        return len(layer.node.inputs)


register_by(
    _ResidualConvolution,
    "int8 convolution with a residual",
    {
        "s8_conv2d__c_2x2_residual": portable.Conv2DInt8,
        "s8_conv2d__dsp_4x2_residual": dsp.Conv2DDsp,
        "s8_conv2d__dsp_tile_residual": dsp_tile.Conv2DTileDsp,
        "s8_conv2d__mve_2x4_residual": mve.Conv2DMve,
        "s8_conv2d__thumb1_4x1_residual": packed_two_per_word.Conv2DThumb1,
        "s8_conv2d__thumb2_4x1_residual": packed_two_per_word.Conv2DThumb2,
    },
)
