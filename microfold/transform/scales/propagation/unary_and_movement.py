"""Rules of operators with one operand, and of operators that only move elements."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.unary import Unary
from microfold.ops.image import image_axis
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.copy import Copy
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin
from microfold.transform.scales.propagation.kinds import SCALE, SHIFT
from microfold.transform.scales.propagation.message import Message, minimal, raised, spread, varying_axes
from microfold.transform.scales.propagation.rule import Messages, Rule, ScaledNode


class UnaryRule(Rule):
    """Rule of an operator with one operand, whose message and the result's determine each other."""

    def refusal(self, place: ScaledNode) -> str | None:
        """Return why no message passes, whatever its numbers are."""
        del place
        return None

    @abstractmethod
    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        """Return the operand's message for a message to the result."""

    @abstractmethod
    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        """Return the result's message for a message to the operand."""

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        refusal = self.refusal(place)
        answer = self.to_operand(place, wanted) if refusal is None else refusal
        return answer if isinstance(answer, str) else (answer,)

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        (message,) = offered
        assert message is not None
        refusal = self.refusal(place)
        answer = self.to_result(place, message) if refusal is None else refusal
        return answer if isinstance(answer, str) else (answer, (None,))


class SameMessage(UnaryRule):
    """Rule that operand and result have the same message."""

    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        return message

    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        return message


@SCALE.rule(Copy)
@SHIFT.rule(Copy)
class _Copy(SameMessage):
    pass


@SCALE.rule(LeakyRelu, Abs)
class _PositivelyHomogeneous(SameMessage):
    any_sign: ClassVar[bool] = False


@SCALE.rule(Clip)
class _Clip(_PositivelyHomogeneous):
    def refusal(self, place: ScaledNode) -> str | None:
        assert isinstance(place.op, Clip)
        bounds = (place.op.minimum, place.op.maximum)
        fixed = [bound for bound in bounds if np.isfinite(bound) and bound != 0]
        return f"it clips at {fixed[0]:g}, which would also have to be scaled" if fixed else None


@SCALE.rule(Unary)
class _Negation(SameMessage):
    def refusal(self, place: ScaledNode) -> str | None:
        assert isinstance(place.op, Unary)
        return None if place.op.function == "neg" else f"{place.op.function} is not linear"


class _Windows(SameMessage):
    """Rule of windows over height and width: messages must not vary along these axes."""

    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        mixed = [image_axis(place.op, name) for name in "HW"]
        wrong = [axis for axis in varying_axes(message) if axis in mixed]
        name = place.kind.name
        return f"its windows mix elements of different {name}s along axis {wrong[0]}" if wrong else message

    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        return self.to_operand(place, message)


@SCALE.rule(AveragePool2D, ResizeBilinear, ResizeNearestNeighbor)
@SHIFT.rule(AveragePool2D, ResizeBilinear, ResizeNearestNeighbor, MaxPool2D)
class _Average(_Windows):
    pass


@SCALE.rule(MaxPool2D)
class _MaxPool(_Windows):
    any_sign: ClassVar[bool] = False


class _Reduction(UnaryRule):
    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        op = place.op
        assert isinstance(op, Mean | Sum | ReduceMax | ReduceMin)
        return message if op.keep_dims else np.expand_dims(message, op.axes)

    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        op = place.op
        assert isinstance(op, Mean | Sum | ReduceMax | ReduceMin)
        mixed = [axis for axis in varying_axes(message) if axis in op.axes]
        if mixed:
            return f"it mixes elements of different {place.kind.name}s along axis {mixed[0]}"
        return message if op.keep_dims else message.squeeze(op.axes)


@SCALE.rule(Mean, Sum)
@SHIFT.rule(Mean, ReduceMax, ReduceMin)
class _LinearReduction(_Reduction):
    pass


@SCALE.rule(ReduceMax, ReduceMin)
class _Extremum(_Reduction):
    any_sign: ClassVar[bool] = False


@SCALE.rule(Pad)
class _ScaledPad(UnaryRule):
    """Rule that a fill of zero passes any scale, and an infinite fill any positive one."""

    def _fault(self, place: ScaledNode, message: Message) -> str | None:
        assert isinstance(place.op, Pad)
        fill = place.op.fill
        if fill == 0 or (np.isinf(fill) and bool(np.all(message > 0))):
            return None
        return f"it fills with {fill:g}, which would also have to be scaled"

    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        assert isinstance(place.op, Pad)
        fault = self._fault(place, message)
        if fault is not None:
            return fault
        inner = tuple(
            slice(before, before + extent) if size > 1 else slice(None)
            for (before, _), extent, size in zip(
                place.op.padding, place.type(0).shape, message.shape, strict=True
            )
        )
        return minimal(message[inner])

    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        assert isinstance(place.op, Pad)
        fault = self._fault(place, message)
        if fault is not None:
            return fault
        pairs = [
            pair if size > 1 else (0, 0) for pair, size in zip(place.op.padding, message.shape, strict=True)
        ]
        return np.pad(message, pairs, constant_values=1.0)


@SHIFT.rule(Pad)
class _ShiftedPad(SameMessage):
    def refusal(self, place: ScaledNode) -> str | None:
        assert isinstance(place.op, Pad)
        return f"it fills with {place.op.fill:g} around the image, where the shift does not reach"


@SCALE.rule(Reshape)
@SHIFT.rule(Reshape)
class _Reshape(UnaryRule):
    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        return minimal(spread(message, place.out.shape).reshape(place.type(0).shape))

    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        return minimal(spread(message, place.type(0).shape).reshape(place.out.shape))


@SCALE.rule(Transpose)
@SHIFT.rule(Transpose)
class _Transpose(UnaryRule):
    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        assert isinstance(place.op, Transpose)
        return message.transpose(np.argsort(place.op.permutation))

    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        assert isinstance(place.op, Transpose)
        return message.transpose(place.op.permutation)


@SCALE.rule(StridedSlice)
@SHIFT.rule(StridedSlice)
class _StridedSlice(UnaryRule):
    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        """Return the operand's message, or a refusal if it varies along a sliced axis."""
        axes = varying_axes(message)
        cut = [axis for axis in axes if place.type(0).shape[axis] != place.out.shape[axis]]
        if cut:
            return f"it slices axis {cut[0]}, and the remainder has no {place.kind.name}"
        # A complete axis, in its order or reversed, is its own inverse.
        return self.to_result(place, message)

    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        op = place.op
        assert isinstance(op, StridedSlice)
        for axis in varying_axes(message):
            index = op.begin[axis] + op.strides[axis] * np.arange(op.size[axis])
            message = message.take(index, axis=axis)
        return minimal(message)


@SCALE.rule(BroadcastTo)
@SHIFT.rule(BroadcastTo)
class _BroadcastTo(UnaryRule):
    def to_operand(self, place: ScaledNode, message: Message) -> Message | str:
        source = (1,) * (place.out.rank - place.type(0).rank) + place.type(0).shape
        wrong = [axis for axis in varying_axes(message) if source[axis] == 1]
        if wrong:
            return f"it broadcasts along axis {wrong[0]}, along which the {place.kind.name} varies"
        return message.reshape(message.shape[place.out.rank - place.type(0).rank :])

    def to_result(self, place: ScaledNode, message: Message) -> Message | str:
        return raised(message, place.out.rank)


@SCALE.rule(Concatenate)
@SHIFT.rule(Concatenate)
class _Concatenate(Rule):
    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        assert isinstance(place.op, Concatenate)
        axis = place.op.axis
        if wanted.shape[axis] == 1:
            return (wanted,) * place.count()
        ends = np.cumsum([place.type(index).shape[axis] for index in range(place.count())])
        parts = [minimal(part) for part in np.split(wanted, ends[:-1].tolist(), axis=axis)]
        # A part with a neutral message does not have to be able to take one.
        return [None if bool(np.all(part == place.kind.neutral)) else part for part in parts]

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        assert isinstance(place.op, Concatenate)
        axis = place.op.axis
        given = [
            np.full((1,) * place.out.rank, place.kind.neutral) if message is None else message
            for message in offered
        ]
        others = np.broadcast_shapes(
            *((*message.shape[:axis], 1, *message.shape[axis + 1 :]) for message in given)
        )
        parts = [
            spread(message, (*others[:axis], place.type(index).shape[axis], *others[axis + 1 :]))
            for index, message in enumerate(given)
        ]
        return minimal(np.concatenate(parts, axis=axis)), (None,) * place.count()
