"""Rules of operators with weights, which absorb messages."""

from __future__ import annotations

import math

import numpy as np

from microfold.ir.op import Op
from microfold.ir.types import Array, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.image import image_axis, layout_of
from microfold.transform.scales.propagation.kinds import SCALE, SHIFT
from microfold.transform.scales.propagation.message import Message, varying_axes, vector
from microfold.transform.scales.propagation.rule import Messages, Rule, ScaledNode

WEIGHTS, BIAS = 1, 2

Weighted = Conv2D | DepthwiseConv2D | TransposeConv2D | FullyConnected


def _channels(place: ScaledNode, message: Message, type: TensorType) -> Message | str:
    """Convert a message to a value of this type into one element per channel, or return why that fails."""
    channels = message.ndim - 1 if layout_of(place.op) is None else image_axis(place.op, "C")
    wrong = [axis for axis in varying_axes(message) if axis != channels]
    if wrong:
        return (
            f"its weights take one {place.kind.name} per channel (axis {channels}); this one varies along "
            f"axis {wrong[0]}"
        )
    return vector(message, channels, type.shape[channels])


def _operands(place: ScaledNode, **given: Message) -> Messages:
    """Return messages for weights and bias, without the message for an absent bias."""
    names = enumerate(("x", "weights", "bias"))
    return [given.get(name) if place.value(index) is not None else None for index, name in names]


def _by_filter(place: ScaledNode, scales: Message) -> Message:
    """Reshape scales per output channel to broadcast against the weights."""
    if isinstance(place.op, DepthwiseConv2D):
        return scales.reshape(1, 1, 1, -1)
    return scales.reshape(-1, *(1 for _ in place.type(WEIGHTS).shape[1:]))


def _by_input(place: ScaledNode, message: Message) -> Message:
    """Reshape a message per input channel to broadcast against the weights."""
    weights = place.type(WEIGHTS).shape
    if isinstance(place.op, DepthwiseConv2D):
        return message.repeat(weights[3] // message.size).reshape(1, 1, 1, -1)
    if isinstance(place.op, Conv2D):
        # Filter o reads the channels of its group.
        groups = message.size // weights[3]
        return message.reshape(groups, 1, 1, weights[3]).repeat(weights[0] // groups, axis=0)
    return message.reshape(*(1 for _ in weights[1:]), -1)


def _beside_data(offered: Messages) -> bool:
    return any(message is not None for message in offered[1:])


@SCALE.rule(Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected)
class _Scaled(Rule):
    """Rule: result scales multiply filters and bias, operand scales the input channels of filters."""

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        scales = _channels(place, wanted, place.out)
        if isinstance(scales, str):
            return scales
        return _operands(place, weights=_by_filter(place, scales), bias=scales)

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        if offered[0] is None or _beside_data(offered):
            return "it reads the scaled value as weights or bias"
        scales = _channels(place, offered[0], place.type(0))
        if isinstance(scales, str):
            return scales
        return None, _operands(place, weights=_by_input(place, scales))


@SHIFT.rule(Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected)
class _Shifted(Rule):
    """Rule: result shifts are added to the bias, operand shifts also, multiplied by the weights."""

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        shifts = _channels(place, wanted, place.out)
        return shifts if isinstance(shifts, str) else (None, None, shifts)

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        weights = place.array(WEIGHTS)
        if offered[0] is None or _beside_data(offered):
            return "it reads the shifted value as weights or bias"
        if weights is None:
            return "its weights are not constant"
        border = uneven_border(place.op)
        if border is not None:
            return border
        shifts = _channels(place, offered[0], place.type(0))
        if isinstance(shifts, str):
            return shifts
        return None, (None, None, self._bias(place, weights, shifts))

    def _bias(self, place: ScaledNode, weights: Array, shifts: Message) -> Message:
        weighted = weights.astype(np.float64) * _by_input(place, shifts)
        axes = (0, 1, 2) if isinstance(place.op, DepthwiseConv2D) else tuple(range(1, weights.ndim))
        return weighted.sum(axis=axes)


@SCALE.rule(BatchMatmul)
class _Matmul(Rule):
    """Rule that the second matrix takes a scale of columns, and the first one a scale of rows."""

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        assert isinstance(place.op, BatchMatmul)
        if math.prod(wanted.shape[:-2]) != 1:
            return "the scale varies from matrix to matrix"
        rows, columns = wanted.shape[-2:]
        flags = (place.op.transpose_first, place.op.transpose_second)
        for index in sorted(range(2), key=lambda index: not place.is_constant(index)):
            fits = rows == 1 if index else columns == 1
            if fits and place.is_open(index):
                part = wanted.reshape(*(1 for _ in place.type(index).shape[:-2]), rows, columns)
                part = part.swapaxes(-1, -2) if flags[index] else part
                return [part if i == index else None for i in range(2)]
        return "neither matrix can take the scale"

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        assert isinstance(place.op, BatchMatmul)
        if any(message is not None and message.size != 1 for message in offered):
            return "only one scale for all elements passes a product of matrices"
        product = math.prod(float(message.item()) for message in offered if message is not None)
        scale = np.full((1,) * place.out.rank, product)
        for index in range(2):
            if place.is_constant(index):
                shape = (1,) * place.type(index).rank
                return None, [scale.reshape(shape) if i == index else None for i in range(2)]
        return scale, (None, None)


def uneven_border(op: Op) -> str | None:
    """Return why a shift has another effect at the border than inside, or None if it has not."""
    if isinstance(op, TransposeConv2D):
        return "the number of input pixels per output pixel varies with the position"
    if isinstance(op, Conv2D | DepthwiseConv2D) and any(any(pair) for pair in op.padding):
        return (
            f"it pads by {op.padding} with zeros, without the shift, so that the bias would have to differ "
            "between border and interior"
        )
    return None
