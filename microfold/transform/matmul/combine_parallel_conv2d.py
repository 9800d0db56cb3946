"""Combines several convolutions of one image into one, if that is profitable.

    %a: int8[1,8,8,3] = conv2d(%x, %v) {...}          %c: int8[1,8,8,8] = conv2d(%x, %vw) {...}
    %b: int8[1,8,8,5] = conv2d(%x, %w) {...}    ->    %a: int8[1,8,8,3] = strided_slice(%c) {...}
                                                      %b: int8[1,8,8,5] = strided_slice(%c) {...}

One convolution is faster than several, but the slices copy every result, and memory must hold the combined
result and the slices at the same time. Measured by simulation for int8 and an 8x8 image, total change in
instructions:

    channels       window    Cortex-M4    Cortex-M55    Cortex-M0+
    16 -> 8+8      3x3           -20 %          -4 %          -6 %
    16 -> 2+2      3x3           -36 %         -46 %         -12 %
    64 -> 8+8+8    3x3           -21 %         -11 %          -5 %
    64 -> 3+5      1x1           -24 %         -20 %         +10 %
    16 -> 8+8      1x1            -5 %         +60 %          +3 %
    64 -> 32+32    1x1            -6 %         +14 %         +13 %

A branch has two costs in addition to its products: gathering the elements of windows that are larger than one
pixel, and an incomplete block, if kernels compute channels in blocks (`PassContext.channel_block`). The rule
counts only these two, with the smallest savings of the three cores; for other cores other numbers can be
passed. Every filter keeps its weights, and integers keep their bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.layout import NHWC
from microfold.ir.node import Node
from microfold.ops.convolution.conv2d import Conv2D
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.matmul.parallel.branches import (
    MIN_NUM_BRANCHES,
    NOT_CONSTANT,
    Branch,
    BranchWeights,
    Check,
    combine_parallel,
    concatenated_weights,
    operands_are_constant,
)


@function_pass(opt_level=4, name="combine_parallel_conv2d")
class CombineParallelConv2D(Struct, frozen=True):
    """Concatenation of the filters of convolutions of one image. All costs are instructions per pixel.

    Attributes:
        window: cost of gathering a window of more than one pixel,
        element: and of each of its elements.
        product: cost of a block of channels for each element of the window.
        slice: cost of a slice,
        byte: and of each of its bytes.
        min_num_branches: minimum number of branches of a group.
        check: returns None or True if the nodes of a group may be combined, or False or a reason if not.

    Raises:
        InputError: `min_num_branches` is less than 2.
    """

    window: float = 60.0
    element: float = 0.3
    product: float = 1.6
    slice: float = 45.0
    byte: float = 0.5
    min_num_branches: int = MIN_NUM_BRANCHES
    check: Check | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        def why_not(group: Sequence[Branch]) -> str | None:
            return self._why_not(group, context.channel_block)

        return combine_parallel(
            graph,
            context,
            Conv2D,
            _key,
            _weights,
            why_not,
            min_num_branches=self.min_num_branches,
            check=self.check,
        )

    def _why_not(self, group: Sequence[Branch], block: int) -> str | None:
        _, height, width, depth = group[0].node.operands[1].type.shape
        elements = height * width * depth
        channels = [branch.output.type.shape[3] for branch in group]
        saved = 0.0
        if height * width > 1:
            saved += (len(group) - 1) * (self.window + self.element * elements)
        if block > 1:
            blocks = sum(-(-count // block) for count in channels) - -(-sum(channels) // block)
            saved += blocks * self.product * elements
        cost = len(group) * self.slice + self.byte * sum(channels) * group[0].output.type.dtype.itemsize
        if saved > cost:
            return None
        return f"per pixel the slices would need about {cost:.0f} instructions to save {saved:.0f}"


def _key(node: Node, graph: Graph) -> tuple[Hashable, ...] | str:
    image, filters = node.operands[0].type, node.operands[1].type
    assert isinstance(node.op, Conv2D)
    if node.op.layout != NHWC:
        return f"its layout is {node.op.layout}, not {NHWC}"
    if filters.shape[3] != image.shape[3]:
        return f"it is grouped: a filter reads {filters.shape[3]} of {image.shape[3]} channels"
    if not operands_are_constant(node, graph):
        return NOT_CONSTANT
    return filters.dtype, filters.shape[1:]


def _weights(group: Sequence[Branch], graph: Graph) -> BranchWeights | str:
    return concatenated_weights(group, graph, axis=0)
