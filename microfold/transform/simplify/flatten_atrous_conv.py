"""Replaces a convolution of an image's phases by one dilated convolution.

    %s: int8[1,4,2,4,2,8] = reshape(%x) {...}
    %t: int8[2,2,1,4,4,8] = transpose(%s) {permutation=(2, 4, 0, 1, 3, 5)}
    %p: int8[4,4,4,8] = reshape(%t) {...}
    %c: int8[4,4,4,8] = conv2d(%p, %w) {dilations=(1, 1), padding=((1, 1), (1, 1)), ...}
    %r: int8[2,2,1,4,4,8] = reshape(%c) {...}
    %u: int8[1,4,2,4,2,8] = transpose(%r) {permutation=(2, 3, 0, 4, 1, 5)}
    %y: int8[1,8,8,8] = reshape(%u) {...}
        ->
    %y: int8[1,8,8,8] = conv2d(%x, %w) {dilations=(2, 2), padding=((2, 2), (2, 2)), ...}

Frameworks write dilations in this form: space_to_batch makes separate images, for example of every second
pixel, and batch_to_space interleaves the results. The pass accepts any sequence of reshapes and transposes,
for one axis or two: only the final positions of the elements count. Cropping by batch_to_space becomes less
padding: a slice that removes edges after a convolution with strides of 1 reduces the padding. Steps that
change each channel separately, such as a clip or a bias, may be in between. Each result has the same products
in the same order, so that all bits stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import GraphBuilder, Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, Shape
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.image import refuses_layout
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.window import Pair
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.layout.propagation.elementwise import is_elementwise

# Maximum number of consecutive reshapes and transposes that are examined on each side.
_LONGEST = 6


@function_pass(opt_level=3)
def flatten_atrous_conv(graph: Graph, context: PassContext) -> Graph:
    """Replace convolutions of phases by dilated ones, and cropped results by less padding."""

    def flatten(site: RewriteSite[None]) -> Replacement:
        layer = _layer_behind(site)
        if layer is None or layer.conv.output.type.shape[0] == 1 or not layer.before:
            return None
        conv, op = layer.conv, layer.op
        phases = _phases(layer)
        if phases is None:
            return None
        reason = _why_not(site, layer)
        if reason is not None:
            context.declined(site.node, reason)
            return None
        height, width = phases.block
        context.fired(site.node, f"{op.name} %{conv.output.name} reads phases of {height} x {width} pixels")
        _, rows, columns, channels = conv.operands[0].type.shape
        (top, bottom), (left, right) = op.padding
        dilated = replace(
            op,
            dilations=(op.dilations[0] * height, op.dilations[1] * width),
            padding=((top * height, bottom * height), (left * width, right * width)),
        )
        whole = Reshape((phases.batch, rows * height, columns * width, channels))
        (image,) = site.builder.emit(whole, [phases.source], [f"{site.node.output.name}_image"])
        return _emit(site, layer, dilated, image)

    def crop(site: RewriteSite[None]) -> Replacement:
        layer = _layer_behind(site)
        if layer is None:
            return None
        conv, op = layer.conv, layer.op
        whole = conv.output.type.shape
        part = _as_image(site.node, whole)
        if part is None or any(isinstance(node.op, Transpose) for node in layer.behind):
            context.declined(site.node, "it must only select adjacent rows and columns")
            return None
        pairs = [
            (before - part.begin[axis], behind - (whole[axis] - part.begin[axis] - part.size[axis]))
            for axis, (before, behind) in enumerate(op.padding, 1)
        ]
        reason = _why_not(site, layer)
        if reason is None and min(min(pair) for pair in pairs) < 0:
            reason = f"it removes more than the padding {op.padding} adds"
        if reason is not None:
            context.declined(site.node, reason)
            return None
        context.fired(site.node, f"{op.name} %{conv.output.name} gets less padding")
        return _emit(site, layer, replace(op, padding=(pairs[0], pairs[1])), conv.operands[0])

    return forward_rewrite(graph, {Reshape: flatten, Transpose: flatten, StridedSlice: crop})


class _Layer(Struct, frozen=True):
    """Convolution, and the operators that rearrange its image and its result.

    Attributes:
        before: reshapes and transposes that produce the image, the last one first.
        behind: reshapes, transposes and channel-wise steps between the result and `place`.
        place: node that is rewritten.
    """

    conv: Node
    before: Sequence[Node]
    behind: Sequence[Node]
    place: Node

    @property
    def op(self) -> Conv2D | DepthwiseConv2D:
        assert isinstance(self.conv.op, Conv2D | DepthwiseConv2D)
        return self.conv.op


class _Phases(Struct, frozen=True):
    """Decomposition of whole images into phases: every `block`-th row and column of a smaller batch.

    Attributes:
        source: value that holds the elements of the whole images, in order.
        batch: number of whole images.
        block: number of phases along rows and columns.
    """

    source: Value
    batch: int
    block: Pair


def _layer_behind(site: RewriteSite[None]) -> _Layer | None:
    """Return the convolution before the node, if only rearrangements and steps are in between."""
    behind: list[Node] = []
    node = site.producer(0)
    while node is not None and not isinstance(node.op, Conv2D | DepthwiseConv2D):
        if len(behind) == _LONGEST or not (_rearranges(node) or _is_step(site, node)):
            return None
        behind.insert(0, node)
        node = site.builder.producer(_data(site, node))
    if node is None:
        return None
    before: list[Node] = []
    inner = site.builder.producer(node.operands[0])
    while inner is not None and _rearranges(inner) and len(before) < _LONGEST:
        before.append(inner)
        inner = site.builder.producer(inner.operands[0])
    return _Layer(node, before, behind, site.node)


def _rearranges(node: Node) -> bool:
    return isinstance(node.op, Reshape | Transpose) and not node.epilogue


def _data(site: RewriteSite[None], node: Node) -> Value | None:
    """Return the only operand that is not constant, or None if several or none are variable."""
    found = [value for value in node.operands if value not in site.builder.constants]
    return found[0] if len(found) == 1 else None


def _is_step(site: RewriteSite[None], node: Node) -> bool:
    """Return whether a node changes every element separately, by numbers that are the same for all pixels."""
    data = _data(site, node)
    if data is None or data.type.shape != node.outputs[0].type.shape or not is_elementwise(node.op):
        return False
    constants = [value.type for value in node.operands if value is not data]
    per_channel = data.type.shape[-1:]
    return not node.epilogue and all(
        type.size == 1 or (type.shape[-1:] == per_channel == (type.size,)) for type in constants
    )


def _why_not(site: RewriteSite[None], layer: _Layer) -> str | None:
    """Return why a convolution cannot absorb the operators after it, or None if it can."""
    if layer.conv.epilogue or site.node.epilogue:
        return "the convolution or the last operator has an epilogue"
    for node in (layer.conv, *layer.behind):
        if site.uses[node.outputs[0]] > 1:
            return f"%{node.outputs[0].name} has other readers"
    if layer.op.strides != (1, 1):
        return f"{layer.op.name} %{layer.conv.output.name} has strides {layer.op.strides}, not (1, 1)"
    channels = layer.conv.output.type.shape[-1]
    order = _moved(layer.conv.output.type.shape, [])
    for node in layer.behind:
        order = _moved_on(order, node)
        if not _rearranges(node) and not _has_channels(order, channels):
            return f"{node.op.name} %{node.outputs[0].name} does not keep the channels of the convolution"
    return refuses_layout(layer.op)


def _has_channels(order: Array, channels: int) -> bool:
    """Return whether the elements of a pixel are along the last axis."""
    return order.shape[-1] == channels and bool(np.all(order % channels == np.arange(channels)))


def _emit(site: RewriteSite[None], layer: _Layer, op: Op, image: Value) -> Replacement:
    """Emit the convolution of an image and the steps after it, in the shape of the rewritten node."""
    name, builder = site.node.output.name, site.builder
    (value,) = builder.emit(op, [image, *layer.conv.inputs[1:]], [f"{name}_conv"])
    for node in layer.behind:
        if _rearranges(node):
            continue
        data = _data(site, node)
        operands = [value if operand is data else _flat(builder, operand) for operand in node.operands]
        (value,) = builder.emit(node.op, operands, [node.outputs[0].name])
    return site.emit(Reshape(site.node.output.type.shape), value)


def _flat(builder: GraphBuilder, value: Value) -> Value:
    """Return a constant of a step without its axes of extent 1."""
    shape = () if value.type.size == 1 else (value.type.size,)
    return builder.constant(builder.constants[value].reshape(shape), value.type.with_shape(shape), value.name)


def _phases(layer: _Layer) -> _Phases | None:
    """Return the phases that the convolution reads, if the node interleaves the results accordingly."""
    image, result = layer.conv.operands[0].type, layer.conv.output.type
    final = _moved(result.shape, [*layer.behind, layer.place]).reshape(-1)
    for count in range(1, len(layer.before) + 1):
        source = layer.before[count - 1].operands[0]
        order = _moved(source.type.shape, layer.before[count - 1 :: -1])
        if np.array_equal(order.reshape(-1), np.arange(order.size)):
            continue  # only a change of shape, not of order
        for batch, height, width in _factors(image.shape[0]):
            block = height, width
            if np.array_equal(order, _taken_apart(batch, block, image.shape)) and np.array_equal(
                _taken_apart(batch, block, result.shape).reshape(-1)[final], np.arange(result.size)
            ):
                return _Phases(source, batch, block)
    return None


def _factors(total: int) -> list[tuple[int, int, int]]:
    """Return (batch, height, width) of all blocks of more than one pixel for a batch of this total size."""
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    return [
        (batch, height, total // batch // height)
        for batch in divisors[:-1]
        for height in divisors
        if total // batch % height == 0
    ]


def _moved(shape: Shape, nodes: Sequence[Node]) -> Array:
    """Return the index in the first node's operand of each element of the last node's result."""
    order = np.arange(math.prod(shape)).reshape(shape)
    for node in nodes:
        order = _moved_on(order, node)
    return order


def _moved_on(order: Array, node: Node) -> Array:
    if isinstance(node.op, Transpose):
        order = order.transpose(node.op.permutation)
    return order.reshape(node.outputs[0].type.shape)


def _taken_apart(batch: int, block: Pair, shape: Shape) -> Array:
    """Return the index in whole images of each element of phases of this shape."""
    (height, width), (_, rows, columns, channels) = block, shape
    whole = np.arange(math.prod(shape)).reshape(batch, rows, height, columns, width, channels)
    return whole.transpose(2, 4, 0, 1, 3, 5).reshape(shape)


def _as_image(node: Node, whole: Shape) -> StridedSlice | None:
    """Return a slice of a convolution's result as a slice of its rows and columns, or None if it is none.

    The result may have lost an axis of extent 1 before the slice.
    """
    op, shape = node.op, node.operands[0].type.shape
    assert isinstance(op, StridedSlice)
    for axis in (1, 2):
        if shape != whole and whole[axis] == 1 and (*whole[:axis], *whole[axis + 1 :]) == shape:
            op = StridedSlice(
                (*op.begin[:axis], 0, *op.begin[axis:]),
                (*op.size[:axis], 1, *op.size[axis:]),
                (*op.strides[:axis], 1, *op.strides[axis:]),
            )
            shape = whole
    is_cut = shape == whole and all(stride == 1 for stride in op.strides)
    return op if is_cut and (op.size[0], op.size[3]) == (whole[0], whole[3]) else None
