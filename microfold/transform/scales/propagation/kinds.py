"""The two kinds of messages: scales start at a product with a constant, shifts at a sum with a constant."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, DType
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.transform.scales.propagation.message import Message, minimal, raised
from microfold.transform.scales.propagation.rule import MessageKind, ScaledNode, Source


def _scale_source(place: ScaledNode) -> Source | None:
    op = place.op
    if isinstance(op, Unary) and op.function == "neg":
        return _source(place, 0, np.array(-1.0))
    if isinstance(op, Mul):
        for data, constant in ((0, 1), (1, 0)):
            array = place.array(constant)
            if array is not None:
                return _source(place, data, array)
    if isinstance(op, Div):
        divisor = place.array(1)
        if divisor is not None and bool(np.all(divisor != 0)):
            return _source(place, 0, 1 / divisor.astype(np.float64))
    return None


def _shift_source(place: ScaledNode) -> Source | None:
    op = place.op
    if isinstance(op, Add):
        for data, constant in ((0, 1), (1, 0)):
            array = place.array(constant)
            if array is not None:
                return _source(place, data, array)
    if isinstance(op, Sub):
        array = place.array(1)
        if array is not None:
            return _source(place, 0, -array)
    return None


def _source(place: ScaledNode, data: int, array: Array) -> Source | None:
    """Return the source, or None unless the data operand is computed, float32 and of the result's shape."""
    if place.is_constant(data) or place.type(data) != place.out or place.out.dtype is not DType.FLOAT32:
        return None
    if not np.isfinite(array).all():
        return None
    message: Message = array.astype(np.float64)
    return Source(data, minimal(raised(message, place.out.rank)))


SCALE = MessageKind("scale", 1.0, np.multiply, _scale_source)
SHIFT = MessageKind("shift", 0.0, np.add, _shift_source)
