"""Importers of operators composed of pads, reshapes, transposes, slices and concatenations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.movement.shapes import exact_fill, padding_pairs
from microfold.ir.node import Value
from microfold.ir.types import Shape
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose

MAX_REPEATS = 256


def _moved(
    context: OperatorContext, x: Value, split: Shape, permutation: Sequence[int], merged: Shape
) -> Value:
    name = context.name()
    (x,) = context.emit(Reshape(split), x, names=[f"{name}_split"])
    (x,) = context.emit(Transpose(tuple(permutation)), x, names=[f"{name}_moved"])
    return context.emit(Reshape(merged), x)[0]


@imports("SPACE_TO_BATCH_ND")
def space_to_batch_nd(context: OperatorContext) -> None:
    """Pad, then move each position within a block of the spatial axes to the batch."""
    x = context.input(0)
    context.require_same_quantization(x)
    block = context.integers(1, "block shape")
    padding = context.integers(2, "padding")
    rank = len(block)
    if not 1 <= rank < x.type.rank or min(block) < 1 or len(padding) != 2 * rank:
        raise Unsupported(f"block {list(block)} and padding {list(padding)} do not match {x.type}")
    zero = context.zero_point(x)
    pairs = ((0, 0), *zip(padding[::2], padding[1::2], strict=True)) + ((0, 0),) * (x.type.rank - 1 - rank)
    if any(padding):
        (x,) = context.emit(Pad(pairs, float(zero)), x, names=[f"{context.name()}_padded"])
    batch, spatial, rest = x.type.shape[0], x.type.shape[1 : 1 + rank], x.type.shape[1 + rank :]
    if any(n % b for n, b in zip(spatial, block, strict=True)):
        raise Unsupported(f"the padded axes {list(spatial)} must divide into blocks {list(block)}")
    outer = tuple(n // b for n, b in zip(spatial, block, strict=True))
    split = (batch, *(n for pair in zip(outer, block, strict=True) for n in pair), *rest)
    inner_axes = [2 + 2 * i for i in range(rank)]
    outer_axes = [1 + 2 * i for i in range(rank)]
    tail = range(1 + 2 * rank, len(split))
    merged = (batch * math.prod(block), *outer, *rest)
    context.finish(_moved(context, x, split, [*inner_axes, 0, *outer_axes, *tail], merged))


@imports("BATCH_TO_SPACE_ND")
def batch_to_space_nd(context: OperatorContext) -> None:
    """Invert SPACE_TO_BATCH_ND: move blocks from the batch to the spatial axes, then crop."""
    x = context.input(0)
    context.require_same_quantization(x)
    block = context.integers(1, "block shape")
    crops = context.integers(2, "crops")
    rank = len(block)
    if not 1 <= rank < x.type.rank or min(block) < 1 or len(crops) != 2 * rank or min(crops) < 0:
        raise Unsupported(f"block {list(block)} and crops {list(crops)} do not match {x.type}")
    size = math.prod(block)
    if x.type.shape[0] % size:
        raise Unsupported(f"a batch of {x.type.shape[0]} must divide into blocks of {size}")
    batch, spatial, rest = x.type.shape[0] // size, x.type.shape[1 : 1 + rank], x.type.shape[1 + rank :]
    split = (*block, batch, *spatial, *rest)
    pairs = [axis for i in range(rank) for axis in (rank + 1 + i, i)]
    tail = range(2 * rank + 1, len(split))
    merged = (batch, *(n * b for n, b in zip(spatial, block, strict=True)), *rest)
    result = _moved(context, x, split, [rank, *pairs, *tail], merged)
    if any(crops):
        begin = (0, *crops[::2], *(0 for _ in rest))
        cropped = (n - a - b for n, a, b in zip(merged[1 : 1 + rank], crops[::2], crops[1::2], strict=True))
        op = StridedSlice(begin, (batch, *cropped, *rest), (1,) * len(merged))
        (result,) = context.emit(op, result)
    context.finish(result)


def _depth_block(context: OperatorContext, kind: str) -> tuple[Value, int]:
    x, block = context.input(0), int(context.required_options(kind).BlockSize())
    x = context.with_declared_scale(x)
    if x.type.rank != 4 or block < 1:
        raise Unsupported(
            f"it must have an NHWC input and a positive block size; they are {x.type} and {block}"
        )
    return x, block


@imports("SPACE_TO_DEPTH")
def space_to_depth(context: OperatorContext) -> None:
    x, block = _depth_block(context, "SpaceToDepthOptions")
    batch, height, width, channels = x.type.shape
    if height % block or width % block:
        raise Unsupported(f"height and width of {x.type} must divide by the block size {block}")
    split = (batch, height // block, block, width // block, block, channels)
    merged = (batch, height // block, width // block, block * block * channels)
    context.finish(_moved(context, x, split, (0, 1, 3, 2, 4, 5), merged))


@imports("DEPTH_TO_SPACE")
def depth_to_space(context: OperatorContext) -> None:
    x, block = _depth_block(context, "DepthToSpaceOptions")
    batch, height, width, channels = x.type.shape
    if channels % (block * block):
        raise Unsupported(f"the channels of {x.type} must divide by the block's {block * block} pixels")
    depth = channels // (block * block)
    split = (batch, height, width, block, block, depth)
    merged = (batch, height * block, width * block, depth)
    context.finish(_moved(context, x, split, (0, 1, 3, 2, 4, 5), merged))


@imports("TILE")
def tile(context: OperatorContext) -> None:
    x = context.input(0)
    x = context.with_declared_scale(x)
    if context.known(1) is None:
        shape = context.static_shape("multiples", x.type.rank)
        if any(n % own for n, own in zip(shape, x.type.shape, strict=True)):
            raise Unsupported(
                f"its result must be a multiple of {x.type} along each axis; it is {list(shape)}"
            )
        repeats = tuple(n // own for n, own in zip(shape, x.type.shape, strict=True))
    else:
        repeats = context.integers(1, "multiples")
    if len(repeats) != x.type.rank or any(not 1 <= n <= MAX_REPEATS for n in repeats):
        raise Unsupported(
            f"multiples must be in [1, {MAX_REPEATS}], one per axis of {x.type}; they are {list(repeats)}"
        )
    axes = [axis for axis, n in enumerate(repeats) if n > 1]
    for axis in axes:
        name = context.name() if axis == axes[-1] else f"{context.name()}_axis{axis}"
        (x,) = context.emit(Concatenate(axis), *[x] * repeats[axis], names=[name])
    context.finish(x)


@imports("DILATE")
def dilate(context: OperatorContext) -> None:
    """Insert constant elements between the elements along each axis."""
    x, steps, array = context.input(0), context.integers(1, "dilations"), context.known(2)
    x = context.with_declared_scale(x)
    if array is None or array.size != 1 or len(steps) != x.type.rank or min(steps, default=1) < 1:
        raise Unsupported(
            f"its fill must be one constant, and its dilations positive, one per axis of {x.type}; they "
            f"are {context.input(2).type} and {list(steps)}"
        )
    context.finish(spread(context, x, steps, exact_fill(array)))


def spread(context: OperatorContext, x: Value, steps: Sequence[int], fill: float) -> Value:
    """Return a value with fills between its elements, which are then `steps` apart along each axis."""
    name = context.name()
    for axis in (axis for axis, step in enumerate(steps) if step > 1 and x.type.shape[axis] > 1):
        before, extent, rest = x.type.shape[:axis], x.type.shape[axis], x.type.shape[axis + 1 :]
        (x,) = context.emit(Reshape((*before, extent, 1, *rest)), x, names=[f"{name}_split{axis}"])
        pairs = tuple((0, steps[axis] - 1 if k == axis + 1 else 0) for k in range(x.type.rank))
        (x,) = context.emit(Pad(pairs, fill), x, names=[f"{name}_spread{axis}"])
        (x,) = context.emit(Reshape((*before, extent * steps[axis], *rest)), x, names=[f"{name}_run{axis}"])
        size = (*before, (extent - 1) * steps[axis] + 1, *rest)
        op = StridedSlice((0,) * len(size), size, (1,) * len(size))
        (x,) = context.emit(op, x, names=[f"{name}_axis{axis}"])
    return x


@imports("MIRROR_PAD")
def mirror_pad(context: OperatorContext) -> None:
    """Concatenate the mirrored start, the value and the mirrored end along each padded axis."""
    x = context.input(0)
    context.require_same_quantization(x)
    edge = (
        1 if int(context.required_options("MirrorPadOptions").Mode()) == 0 else 0
    )  # REFLECT leaves out the edge
    pairs = padding_pairs(context, x)
    axes = [axis for axis, pair in enumerate(pairs) if any(pair)]
    for axis in axes:
        extent, (before, after) = x.type.shape[axis], pairs[axis]
        if not 0 <= max(before, after) <= extent - edge or min(before, after) < 0:
            raise Unsupported(f"axis {axis} of {x.type} cannot be mirrored by {before} and {after}")
        parts = [x]
        if before:
            parts.insert(0, _mirrored(context, x, axis, before - 1 + edge, before))
        if after:
            parts.append(_mirrored(context, x, axis, extent - 1 - edge, after))
        name = context.name() if axis == axes[-1] else f"{context.name()}_axis{axis}"
        (x,) = context.emit(Concatenate(axis), *parts, names=[name])
    context.finish(x)


def _mirrored(context: OperatorContext, x: Value, axis: int, start: int, count: int) -> Value:
    begin = tuple(start if i == axis else 0 for i in range(x.type.rank))
    size = tuple(count if i == axis else n for i, n in enumerate(x.type.shape))
    strides = tuple(-1 if i == axis else 1 for i in range(x.type.rank))
    return context.emit(StridedSlice(begin, size, strides), x, names=[f"{context.name()}_mirrored"])[0]


@imports("REVERSE_V2")
def reverse_v2(context: OperatorContext) -> None:
    x = context.input(0)
    x = context.with_declared_scale(x)
    named = context.integers(1, "axes")
    axes = {context.axis(axis, x.type.rank) for axis in named}
    if len(axes) != len(named):
        raise Unsupported(f"its axes must be distinct; they are {list(named)}")
    begin = tuple(n - 1 if axis in axes else 0 for axis, n in enumerate(x.type.shape))
    strides = tuple(-1 if axis in axes else 1 for axis in range(x.type.rank))
    context.finish(*context.emit(StridedSlice(begin, x.type.shape, strides), x))


@imports("BROADCAST_TO")
def broadcast_to(context: OperatorContext) -> None:
    x = context.input(0)
    x = context.with_declared_scale(x)
    context.finish(*context.emit(BroadcastTo(context.result_shape(1, "shape")), x))


@imports("FILL")
def fill(context: OperatorContext) -> None:
    value = context.input(1)
    if value.type.size != 1:
        raise Unsupported(f"its value must be one element; it is {value.type}")
    context.require_same_quantization(value)
    (scalar,) = context.emit(Reshape(()), value, names=[f"{context.name()}_scalar"])
    context.finish(*context.emit(BroadcastTo(context.result_shape(0, "shape")), scalar))
