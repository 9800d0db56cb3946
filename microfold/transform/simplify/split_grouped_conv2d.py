"""Computes the groups of a convolution apart, where that takes less than to compute them as one dense one.

    %y: int8[1,8,8,8] = conv2d(%x, %w) {...}
        ->
    %c: int8[1,8,8,4] = strided_slice(%x) {begin=(0, 0, 0, 0), size=(1, 8, 8, 4), ...}
    %a: int8[1,8,8,4] = conv2d(%c, %v) {...}
    ...
    %y: int8[1,8,8,8] = concatenate(%a, %b) {axis=3}

No kernel computes groups; `expand_grouped_conv2d` makes them dense with weights of zero, of which there are
as many times more as there are groups. A part of the groups, cut out of the image, costs its share of
products, and for each pixel a slice, a window and a place in the concatenation. The rule takes that number of
parts for which both together are the fewest instructions, if that saves a tenth of them: parts take RAM,
since they live beside the image and the result. Where a limit is met only without, the groups stay as one. A
part may still hold several groups. Every sum has the products that it had, so that integers keep their bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import GraphBuilder, Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.image import refuses_layout
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@dataclass(frozen=True)
class _Costs:
    """Instructions for each pixel, measured on int8; other types have dearer products.

    Attributes:
        product: of an input and a weight.
        part: what a part takes besides, for its slice, its pixel and its place in the result,
        row: and for each row of its window.
        byte: to copy a byte of the image or of the result.
    """

    product: float
    part: float
    row: float
    byte: float

    def total(self, parts: int, products: int, height: int, copied: int) -> float:
        """Instructions for a pixel; `products` and `copied` are those of all groups, made dense."""
        copies = self.byte * copied if parts > 1 else 0.0
        return self.product * products / parts + parts * (self.part + self.row * height) + copies


# Less than this share of the instructions as one must be left.
_WORTH = 0.9

# The smallest savings of cores with DSP instructions and below, and of those that compute channels in blocks.
_SCALAR = _Costs(product=0.78, part=70.0, row=55.0, byte=3.0)
_VECTOR = _Costs(product=0.14, part=45.0, row=25.0, byte=0.5)


@function_pass(opt_level=3)
def split_grouped_conv2d(graph: Graph, context: PassContext) -> Graph:
    """Compute groups of convolutions on slices of the image, where that pays."""
    costs = _SCALAR if context.channel_block == 1 else _VECTOR

    def split(site: RewriteSite[None]) -> Replacement:
        node, image, weights = site.node, site.value(0), site.value(1)
        assert isinstance(node.op, Conv2D)
        assert image is not None
        assert weights is not None
        layout = refuses_layout(node.op)
        if layout is not None:
            context.declined(node, layout)
            return None
        if image.type.shape[3] == weights.type.shape[3]:
            return None
        constants = [site.array(value) for value in node.inputs[1:] if value is not None]
        reason = _why_not(site, constants)
        groups = image.type.shape[3] // weights.type.shape[3]
        parts = _best(costs, image.type, weights.type, node.output.type, groups)
        if reason is None and parts == 1:
            reason = (
                f"{groups} groups as one: their parts of the image take about as much to copy as they save"
            )
        if reason is None and context.spare_ram:
            reason = f"{groups} groups as one: {parts} parts would take more RAM than is allowed"
        if reason is not None:
            context.declined(node, reason)
            return None
        context.fired(node, f"{groups} groups in {parts} parts")
        return _emit(site, image, parts)

    return forward_rewrite(graph, {Conv2D: split})


def may_split(graph: Graph) -> bool:
    """Whether there are groups that the pass may take apart, here or in subgraphs."""
    return any(isinstance(node.op, Conv2D) and _has_groups(node) for node in graph.nodes) or any(
        may_split(body) for body in graph.subgraphs.values()
    )


def _has_groups(node: Node) -> bool:
    image, weights = node.operands[0].type, node.operands[1].type
    # Where channels are not last, ConvertLayout decides what there is to split.
    layout = refuses_layout(node.op)
    return layout is not None or image.shape[3] != weights.shape[3]


def _why_not(site: RewriteSite[None], constants: list[Array | None]) -> str | None:
    if site.node.epilogue:
        return "it has an epilogue"
    if any(array is None for array in constants):
        return "a grouped convolution whose filter or bias is not constant"
    if constants[0] is not None and constants[0].shape[3] == 1:
        return "groups of one channel are a depthwise convolution"
    return None


def _best(costs: _Costs, image: TensorType, weights: TensorType, result: TensorType, groups: int) -> int:
    """The number of parts that takes the fewest instructions; 1 if none saves enough."""
    _, height, width, _ = weights.shape
    channels, filters = image.shape[3], weights.shape[0]
    # What is copied of the image, for each pixel of the result.
    share = math.prod(image.shape[1:3]) / max(1, math.prod(result.shape[1:3]))
    copied = round(share * channels * image.dtype.itemsize) + filters * result.dtype.itemsize
    products = height * width * channels * filters
    totals = {
        parts: costs.total(parts, products, height, copied)
        for parts in range(1, groups + 1)
        if groups % parts == 0
    }
    best = min(totals, key=totals.__getitem__)
    return best if totals[best] < _WORTH * totals[1] else 1


def _emit(site: RewriteSite[None], image: Value, parts: int) -> Value:
    node, builder = site.node, site.builder
    name, shape = node.output.name, image.type.shape
    depth, filters = shape[3] // parts, node.output.type.shape[3] // parts
    results: list[Value] = []
    for part in range(parts):
        cut = StridedSlice((0, 0, 0, part * depth), (*shape[:3], depth), (1, 1, 1, 1))
        (source,) = builder.emit(cut, [image], [f"{image.name}_part{part}"])
        rows = slice(part * filters, (part + 1) * filters)
        operands = [_rows(builder, site.value(index), rows) for index in range(1, len(node.inputs))]
        results += builder.emit(node.op, [source, *operands], [f"{name}_part{part}"])
    (whole,) = builder.emit(Concatenate(3), results, [name])
    return whole


def _rows(builder: GraphBuilder, value: Value | None, rows: slice) -> Value | None:
    """Some filters of a constant, or their biases, with their own scales."""
    if value is None:
        return None
    array, type = builder.constants[value][rows], value.type
    quant = type.quant
    if quant is not None and quant.axis == 0:
        quant = replace(quant, scales=quant.scales[rows], zero_points=quant.zero_points[rows])
    part = TensorType(type.dtype, array.shape, quant)
    return builder.constant(array, part, f"{value.name}_{rows.start}")
