"""Rules of operators with two operands that broadcast."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.transform.scales.propagation.kinds import SCALE, SHIFT
from microfold.transform.scales.propagation.message import (
    Message,
    agree,
    lowered,
    minimal,
    raised,
    varying_axes,
)
from microfold.transform.scales.propagation.rule import Messages, Rule, ScaledNode


def to_operand(place: ScaledNode, index: int, message: Message) -> Message | str:
    """Convert the result's message to one for an operand that may be broadcast. Constants may grow."""
    type = place.type(index)
    if place.is_constant(index):
        return lowered(message, type.rank)
    extents = (1,) * (place.out.rank - type.rank) + type.shape
    wrong = [axis for axis in varying_axes(message) if extents[axis] == 1]
    if wrong:
        value = place.value(index)
        assert value is not None
        return f"it varies along axis {wrong[0]}, along which %{value.name} is broadcast"
    return message.reshape(message.shape[place.out.rank - type.rank :])


def offers_as_results(place: ScaledNode, offered: Messages) -> list[Message | None]:
    """Convert the operands' messages to the rank of the result."""
    return [None if message is None else raised(message, place.out.rank) for message in offered]


class _Branches(Rule):
    """Rule that both operands have the scale of the result."""

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        parts = [to_operand(place, index, wanted) for index in range(2)]
        refusal = next((part for part in parts if isinstance(part, str)), None)
        return refusal if refusal is not None else [part for part in parts if not isinstance(part, str)]

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        given = offers_as_results(place, offered)
        scale = next(message for message in given if message is not None)
        rest: list[Message | None] = [None, None]
        for index, message in enumerate(given):
            if message is not None and not agree(message, scale):
                return "its branches have different scales"
            if message is None and not place.is_constant(index):
                return "its other branch does not have this scale"
            if message is None:
                if bool(np.any(scale == 0)):
                    return "the other operand would have to be divided by a scale of 0"
                rest[index] = lowered(1 / scale, place.type(index).rank)
        return scale, rest


@SCALE.rule(Add, Sub)
class _Sum(_Branches):
    pass


@SCALE.rule(Maximum, Minimum)
class _Extremum(_Branches):
    any_sign: ClassVar[bool] = False


@SCALE.rule(Mul)
class _Product(Rule):
    """Rule that one operand gets the scale of the result: a constant operand if possible."""

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        order = sorted(range(2), key=lambda index: not place.is_constant(index))
        parts = [to_operand(place, index, wanted) for index in order]
        for index, part in zip(order, parts, strict=True):
            if not isinstance(part, str) and place.is_open(index):
                return [part if i == index else None for i in range(2)]
        return next((part for part in parts if isinstance(part, str)), "no operand can take it")

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        given = offers_as_results(place, offered)
        product = np.ones((1,) * place.out.rank)
        for message in given:
            product = product if message is None else product * message
        for index in range(2):
            if place.is_constant(index):
                return None, [
                    lowered(product, place.type(index).rank) if i == index else None for i in range(2)
                ]
        return minimal(product), (None, None)


@SCALE.rule(Div)
class _Quotient(Rule):
    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        part = to_operand(place, 0, wanted)
        return part if isinstance(part, str) else (part, None)

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        above, below = offers_as_results(place, offered)
        if below is not None:
            return "its divisor would be scaled"
        return above, (None, None)


@SCALE.rule(Prelu)
class _Prelu(Rule):
    any_sign: ClassVar[bool] = False

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        part = to_operand(place, 0, wanted)
        return part if isinstance(part, str) else (part, None)

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        x, alpha = offers_as_results(place, offered)
        return "its slope would be scaled" if alpha is not None else (x, (None, None))


@SHIFT.rule(Add, Sub)
class _ShiftedSum(Rule):
    """Rule that one operand gets the shift of the result: a constant, or the first one that can take it."""

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        reasons: list[str] = []
        for index in sorted(range(2), key=lambda index: not place.is_constant(index)):
            part = to_operand(place, index, wanted)
            value = place.value(index)
            if isinstance(part, str):
                reasons.append(part)
            elif value is not None and place.is_open(index):
                return [_signed(place, index, part) if i == index else None for i in range(2)]
        return reasons[0] if reasons else "neither of its operands can take the shift"

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        total = np.zeros((1,) * place.out.rank)
        for index, message in enumerate(offers_as_results(place, offered)):
            total = total if message is None else total + _signed(place, index, message)
        for index in range(2):
            if place.is_constant(index):
                part = lowered(_signed(place, index, total), place.type(index).rank)
                return None, [part if i == index else None for i in range(2)]
        return minimal(total), (None, None)


def _signed(place: ScaledNode, index: int, message: Message) -> Message:
    return -message if isinstance(place.op, Sub) and index == 1 else message


@SHIFT.rule(Mul)
class _ScaledShift(Rule):
    """Rule that a product with a constant multiplies a shift of its operand."""

    def backward(self, place: ScaledNode, wanted: Message) -> Messages | str:
        return "it would have to be divided by the factor: fold the scale first"

    def forward(self, place: ScaledNode, offered: Messages) -> tuple[Message | None, Messages] | str:
        for index, message in enumerate(offers_as_results(place, offered)):
            factor = place.array(1 - index)
            if message is not None and factor is not None:
                return minimal(message * raised(factor.astype(np.float64), place.out.rank)), (None, None)
        return "its other factor is not constant"
