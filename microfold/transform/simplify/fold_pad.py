"""Folds explicit padding into convolutions, maximum pools and Fourier transforms.

    %p: int8[1,10,10,3] = pad(%x) {padding=((0, 0), (1, 1), (1, 1), (0, 0)), fill=-3.0}
    %y: int8[1,8,8,4] = conv2d(%p, %w) {..., padding=((0, 0), (0, 0))}
        ->
    %y: int8[1,8,8,4] = conv2d(%x, %w) {..., padding=((1, 1), (1, 1))}

The padding must be of height and width only. Its fill must be the one that the operator's own padding
implies: the real zero (the zero point) for a convolution, the lowest value for a maximum pool. An average
pool counts only elements inside the image, therefore its padding is different. A Fourier transform of real
samples appends zeros to them itself, up to its length.

The padding moves only if every reader of the padded image can take it. Otherwise the padded image has to be
computed anyway, and the other readers would only become slower and keep the unpadded image alive.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D
from microfold.ops.image import refuses_layout
from microfold.ops.movement.pad import Pad
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.signal.rfft import SignalRfft
from microfold.ops.window import Padding
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

Convolution = Conv2D | DepthwiseConv2D | HybridConv2D | HybridDepthwiseConv2D
_CONVOLUTIONS = (Conv2D, DepthwiseConv2D, HybridConv2D, HybridDepthwiseConv2D)


@function_pass(opt_level=2)
def fold_pad(graph: Graph, context: PassContext) -> Graph:
    """Move explicit padding into the operators that read it."""
    # A pad may follow another one: one round may enable rewrites of the next.
    while True:
        folded = _fold_once(graph, context)
        if folded is graph:
            return graph
        graph = folded


def _fold_once(graph: Graph, context: PassContext) -> Graph:
    consumers = graph.consumers()
    ends = {*graph.outputs, *(state.next for state in graph.state)}
    pads: dict[Value, Node] = {}
    for node in graph.nodes:
        if isinstance(node.op, Pad) and not node.epilogue:
            reason = _why_not(node, consumers.get(node.output, []), node.output in ends)
            if reason is None:
                pads[node.output] = node
            else:
                context.declined(node, reason)

    def fold(site: RewriteSite[None]) -> tuple[Value, ...] | None:
        node = site.node
        pad = pads.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        producer = site.producer(0)
        if pad is None or producer is None:
            return None
        assert isinstance(pad.op, Pad)
        if isinstance(node.op, SignalRfft):
            context.fired(pad, f"{node.op.name} %{node.outputs[0].name} appends zeros to its samples")
            return site.emit(node.op, producer.inputs[0])
        assert isinstance(node.op, Convolution | MaxPool2D)
        op = replace(node.op, padding=_sum(pad.op, node.op.padding))
        rest = [site.value(index) for index in range(1, len(node.inputs))]
        context.fired(pad, f"{node.op.name} %{node.outputs[0].name} pads by {op.padding} itself")
        return site.emit(op, producer.inputs[0], *rest, epilogue=site.epilogue)

    return forward_rewrite(graph, dict.fromkeys((*_CONVOLUTIONS, MaxPool2D, SignalRfft), fold))


def _why_not(pad: Node, readers: list[Node], is_end: bool) -> str | None:
    """Return why a pad has to stay, or None if all its readers can take it."""
    assert isinstance(pad.op, Pad)
    if is_end:
        return "its result leaves the graph"
    if readers and all(isinstance(node.op, SignalRfft) for node in readers):
        *outer, (before, _) = pad.op.padding
        is_tail = pad.op.fill == 0 and not before and not any(map(any, outer))
        return None if is_tail else "transforms only append zeros to their samples"
    for axis, pair in enumerate(pad.op.padding):
        if pair != (0, 0) and (len(pad.op.padding) != 4 or axis not in (1, 2)):
            return f"it pads axis {axis}; only height and width of an NHWC image can be folded"
    refusals = [(node, _refusal(pad, node)) for node in readers]
    reasons = [f"{node.op.name} %{node.outputs[0].name}: {why}" for node, why in refusals if why is not None]
    if len(reasons) < len(refusals):
        return f"{reasons[0]}; the padded image is needed anyway" if reasons else None
    return reasons[0] if reasons else "nothing reads it"


def _refusal(pad: Node, reader: Node) -> str | None:
    """Return why a reader cannot do the padding itself, or None if it can."""
    op, value = reader.op, pad.output
    assert isinstance(pad.op, Pad)
    if isinstance(op, AveragePool2D):
        return "it counts only elements inside the image, so that padding would change the mean"
    if not isinstance(op, Convolution | MaxPool2D):
        return "the operator has no padding attribute"
    if reader.operands.count(value) != 1 or reader.inputs[0] is not value:
        return "the padded value must be its image operand and no other"
    layout = refuses_layout(op)
    if layout is not None:
        return layout
    neutral = _lowest(value) if isinstance(op, MaxPool2D) else _zero(value)
    if pad.op.fill != neutral:
        return f"the fill must be {neutral:g}, as in its own padding; it is {pad.op.fill:g}"
    if isinstance(op, MaxPool2D):
        extent = op.window.extent
    else:
        weights = reader.inputs[1]
        assert weights is not None
        extent = op.window(weights.type).extent
    total = _sum(pad.op, op.padding)
    if any(max(pair) >= span for pair, span in zip(total, extent, strict=True)):
        return f"padding by {total} would put whole windows of {extent} outside the image"
    return None


def _sum(pad: Pad, padding: Padding) -> Padding:
    (top, bottom), (left, right) = pad.padding[1:3]
    rows, columns = padding
    return (top + rows[0], bottom + rows[1]), (left + columns[0], right + columns[1])


def _zero(value: Value) -> float:
    return 0.0 if value.type.quant is None else float(value.type.quant.zero_points[0])


def _lowest(value: Value) -> float:
    return -math.inf if value.type.dtype.is_float else float(value.type.dtype.range[0])
