"""Rule of fully connected layers: constant weights can be permuted like the elements that they multiply."""

from __future__ import annotations

import numpy as np

from microfold.ir.node import Value
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.reshape import Reshape
from microfold.transform.layout.propagation.arrangement import Arrangement
from microfold.transform.layout.propagation.frame import Frame
from microfold.transform.layout.propagation.message import put_in_order
from microfold.transform.layout.propagation.rule import Answer, ReorderedNode, layout_rule

ROWS, DEPTH = 0, 1


@layout_rule(FullyConnected)
def fully_connected(place: ReorderedNode) -> Answer:
    """Permute the columns of the weights if the rows are in order. This is exact for integers.

    If the source has the elements before the rows, each sum runs along a column of the source. A convolution
    of the image [1, K, N, 1] with windows of K rows by one column then computes the same sums in place.
    """
    frame = place.frame()
    if frame is None:
        return "the rows of its operand cannot be distinguished in the other order"
    if place.array(1) is None:
        return "its weights are not constant"
    sizes, order = frame.arrangement.sizes, frame.arrangement.order
    rows = [f for f in order if frame.axes[f] == ROWS and sizes[f] != 1]
    depth = [f for f in order if frame.axes[f] == DEPTH and sizes[f] != 1]
    if sorted(rows + depth) == rows + sorted(depth):
        weights = place.permuted(1, _columns(frame), DEPTH)
        return place.emit(place.op, _source(place, place.type(0).shape), weights, *place.inputs[2:])
    if sorted(rows + depth) == sorted(depth) + rows:
        return _as_convolution(place, frame)
    return "the rows of its operand are mixed in the other order"


def _columns(frame: Frame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the column of the weights for each element of the source's rows."""
    columns = frame.arrangement.restricted(lambda factor: frame.axes[factor] == DEPTH)
    return columns.inverse.apply(np.arange(frame.value[DEPTH])).reshape(-1)


def _source(place: ReorderedNode, shape: tuple[int, ...]) -> Value:
    message = place.arranged()
    assert message is not None
    identity = Arrangement.identity(message.source.type.shape)
    return put_in_order(place.site.builder, message.source, identity, shape, message.name, place.made)


def _as_convolution(place: ReorderedNode, frame: Frame) -> Answer:
    op, x, weights = place.op, place.type(0), place.type(1)
    assert isinstance(op, FullyConnected)
    if weights.quant is not None and any(weights.quant.zero_points):
        return "as a convolution its weights must have zero point 0"
    builder = place.site.builder
    turned = place.permuted(1, _columns(frame), DEPTH)
    filters = builder.constants[turned].reshape(*weights.shape, 1, 1)
    kernel = builder.constant(filters, weights.with_shape(filters.shape), turned.name)
    image = _source(place, (1, x.shape[DEPTH], x.shape[ROWS], 1))
    conv = Conv2D((1, 1), (1, 1), ((0, 0), (0, 0)), op.out)
    sums = place.emit(conv, image, kernel, *place.inputs[2:])
    return builder.emit(Reshape(place.out.shape), [sums], [place.node.outputs[0].name])[0]
