"""Moves pads after reshapes that make images, so that convolutions can do the padding.

    %p: int8[1,12,8] = pad(%x) {padding=((0, 0), (4, 0), (0, 0)), ...}
    %y: int8[1,1,12,8] = reshape(%p) {shape=(1, 1, 12, 8)}
        ->
    %r: int8[1,1,8,8] = reshape(%x) {shape=(1, 1, 8, 8)}
    %y: int8[1,1,12,8] = pad(%r) {padding=((0, 0), (0, 0), (4, 0), (0, 0)), ...}

Convolutions along one axis are written as convolutions of an image with one row, and the samples are padded
before they become an image. The samples of a Fourier transform are similar. If a reshape only adds axes of
extent 1, or removes unpadded ones, the pad moves after it, unless the padded value has other readers.
Elements are only moved, so that all bits stay the same.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Shape
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.signal.rfft import SignalRfft
from microfold.ops.window import Pair
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=2)
def move_pad_behind_reshape(graph: Graph, context: PassContext) -> Graph:
    """Swap pads with the reshapes after them that make images of four axes, or samples of a transform."""
    samples = {node.inputs[0] for node in graph.nodes if isinstance(node.op, SignalRfft)}

    def swap(site: RewriteSite[None]) -> Replacement:
        node, pad = site.node, site.producer(0)
        if pad is None or not isinstance(pad.op, Pad):
            return None
        if node.output.type.rank != 4 and node.output not in samples:
            return None
        if node.epilogue or pad.epilogue or not site.is_only_reader(0):
            context.declined(node, f"%{pad.output.name} has other readers, or one of both has an epilogue")
            return None
        pairs = _renamed(pad.output.type.shape, node.output.type.shape, pad.op.padding)
        if pairs is None:
            context.declined(node, "it does more than add or remove axes of extent 1")
            return None
        context.fired(node, f"it goes before pad %{pad.output.name}")
        extents = node.output.type.shape
        shape = tuple(n - before - behind for n, (before, behind) in zip(extents, pairs, strict=True))
        (image,) = site.builder.emit(Reshape(shape), [pad.operands[0]], [f"{node.output.name}_image"])
        return site.emit(replace(pad.op, padding=pairs), image)

    return forward_rewrite(graph, {Reshape: swap})


def _renamed(shape: Shape, result: Shape, padding: tuple[Pair, ...]) -> tuple[Pair, ...] | None:
    """Return the padding of each axis of a reshape's result, or None if the padded axes do not match."""
    axes = [axis for axis, pair in enumerate(padding) if shape[axis] != 1 or any(pair)]
    pairs: list[Pair] = []
    for extent in result:
        if axes and shape[axes[0]] == extent:
            pairs.append(padding[axes.pop(0)])
        elif extent == 1:
            pairs.append((0, 0))
        else:
            return None
    return tuple(pairs) if not axes else None
