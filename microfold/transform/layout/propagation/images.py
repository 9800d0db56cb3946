"""Rules of heavily sensitive operators, which need an image's layout. Its channels may be in any order.

An operator that processes each channel separately returns its channels in the same order, and permutes its
filters accordingly. An operator that sums over channels permutes its filters, and the message ends there.
Integers keep their bits; sums of floats over permuted channels are accumulated in another order, as in
`canonicalize_ops`.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.node import Value
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.image import refuses_layout
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.transform.layout.propagation.arrangement import Arrangement
from microfold.transform.layout.propagation.message import put_in_order
from microfold.transform.layout.propagation.rule import Answer, ReorderedNode, layout_rule

CHANNELS = 3  # channel axis of an NHWC image


def _channels(place: ReorderedNode) -> Arrangement | str:
    """Return the order of the channels if all other axes of the image are in order, else the refusal."""
    layout = refuses_layout(place.op)
    if layout is not None:
        return layout
    frame = place.frame()
    if frame is None:
        return "the axes of the image cannot be distinguished in the other order"
    sizes, order = frame.arrangement.sizes, frame.arrangement.order
    pixels = [f for f in order if frame.axes[f] != CHANNELS and sizes[f] != 1]
    channels = [f for f in order if frame.axes[f] == CHANNELS and sizes[f] != 1]
    if sorted(pixels + channels) != pixels + sorted(channels):
        return "the image it reads is not NHWC in the other order"
    return frame.arrangement.restricted(lambda f: frame.axes[f] == CHANNELS)


def _image(place: ReorderedNode) -> Value:
    """Return the image with the channels in the order of the source."""
    message = place.arranged()
    assert message is not None
    return put_in_order(
        place.site.builder,
        message.source,
        Arrangement.identity(message.source.type.shape),
        message.type.shape,
        message.name,
        place.made,
    )


def _result(place: ReorderedNode, source: Value, channels: Arrangement) -> Answer:
    """Return the answer for a result whose batch, height and width are in order, with these channels."""
    pixels = source.type.shape[:CHANNELS]
    order = (0, 1, 2, *(CHANNELS + factor for factor in channels.order))
    return place.result(source, Arrangement((*pixels, *channels.sizes), order))


@layout_rule(AveragePool2D, MaxPool2D, ResizeBilinear, ResizeNearestNeighbor)
def channelwise(place: ReorderedNode) -> Answer:
    channels = _channels(place)
    if isinstance(channels, str):
        return channels
    return _result(place, place.emit(place.op, _image(place)), channels)


@layout_rule(DepthwiseConv2D)
def depthwise_conv2d(place: ReorderedNode) -> Answer:
    channels = _channels(place)
    filters, bias = place.array(1), place.array(2)
    if isinstance(channels, str):
        return channels
    if filters is None or (bias is None and len(place.node.inputs) > 2 and place.node.inputs[2] is not None):
        return "its filters and bias are not constant"
    multiplier = filters.shape[CHANNELS] // place.type(0).shape[CHANNELS]
    results = Arrangement((*channels.sizes, multiplier), (*channels.order, len(channels.sizes)))
    places = results.inverse.apply(np.arange(filters.shape[CHANNELS])).reshape(-1)
    inputs: list[Value | None] = [_image(place), place.permuted(1, places, CHANNELS)]
    if len(place.node.inputs) > 2:
        inputs.append(place.permuted(2, places, 0) if bias is not None else None)
    return _result(place, place.emit(place.op, *inputs), results)


@layout_rule(Conv2D, TransposeConv2D)
def conv2d(place: ReorderedNode) -> Answer:
    channels = _channels(place)
    filters = place.array(1)
    if isinstance(channels, str):
        return channels
    if filters is None or filters.shape[CHANNELS] != place.type(0).shape[CHANNELS]:
        return "its filters are not constant, or read groups of channels"
    places = channels.inverse.apply(np.arange(filters.shape[CHANNELS])).reshape(-1)
    return place.emit(place.op, _image(place), place.permuted(1, places, CHANNELS), *place.inputs[2:])
