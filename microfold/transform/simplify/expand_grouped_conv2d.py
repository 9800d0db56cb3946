"""Makes grouped convolutions dense: each filter gets zero weights for the channels of the other groups.

    %w = constant int8[2,1,1,1] [3, 5]                      %w = constant int8[2,1,1,2] [3, 0, 0, 5]
    %y: int8[1,4,4,2] = conv2d(%x, %w) {...}        ->      %y: int8[1,4,4,2] = conv2d(%x, %w) {...}

No kernel computes groups. A zero weight adds nothing, so the bits stay the same. The number of weights and of
multiplications grows by the number of groups. If that is too expensive, `split_grouped_conv2d` has split the
groups before. Groups of one channel are depthwise convolutions, which `canonicalize_ops` has replaced before.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import Array
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D
from microfold.ops.image import refuses_layout
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0, mandatory=True)
def expand_grouped_conv2d(graph: Graph, context: PassContext) -> Graph:
    """Replace the filters of grouped convolutions by dense ones."""

    def expand(site: RewriteSite[None]) -> tuple[Value, ...] | None:
        node, image, weights = site.node, site.value(0), site.value(1)
        assert image is not None
        assert weights is not None
        layout = refuses_layout(node.op)
        if layout is not None:
            context.declined(node, layout)
            return None
        channels, depth = image.type.shape[3], weights.type.shape[3]
        if channels == depth:
            return None
        array = site.array(node.inputs[1])
        if array is None:
            context.declined(node, "a grouped convolution whose filter is not constant")
            return None
        dense = dense_filters(array, channels)
        value = site.builder.constant(dense, weights.type.with_shape(dense.shape), weights.name)
        context.fired(node, f"{channels // depth} groups of {depth} channels")
        rest = (site.value(index) for index in range(2, len(node.inputs)))
        return site.emit(node.op, image, value, *rest, epilogue=site.epilogue)

    return forward_rewrite(graph, {Conv2D: expand, HybridConv2D: expand})


def dense_filters(filters: Array, channels: int) -> Array:
    """Extend filters [OC, KH, KW, channels of a group] to all `channels`, with zeros for other groups."""
    depth = filters.shape[3]
    groups = channels // depth
    count = filters.shape[0] // groups
    dense = np.zeros((*filters.shape[:3], channels), filters.dtype)
    for group in range(groups):
        rows = slice(group * count, (group + 1) * count)
        dense[rows, ..., group * depth : (group + 1) * depth] = filters[rows]
    return dense
