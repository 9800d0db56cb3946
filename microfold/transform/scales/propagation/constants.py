"""Application of messages to constants."""

from __future__ import annotations

import numpy as np

from microfold.ir.node import Value
from microfold.ir.types import Array, DType, TensorType
from microfold.transform.scales.propagation.message import Message, spread
from microfold.transform.scales.propagation.rule import MessageKind

# Elements smaller than the largest one by this factor may become subnormal and lose digits.
NEGLIGIBLE = 2.0**-24


def apply(kind: MessageKind, name: str, array: Array, message: Message) -> Array | str:
    """Return the constant with the message applied, computed in float64 and rounded once, or the refusal."""
    if array.dtype != np.float32:
        return f"%{name} is {array.dtype}; messages are applied to float32"
    with np.errstate(all="ignore"):
        exact = kind.compose(array.astype(np.float64), message)
        result = exact.astype(np.float32)
    if result.size > max(array.size, message.size):
        return f"%{name} would grow from {array.size} to {result.size} elements"
    if not np.isfinite(result).all():
        return f"%{name} would have elements beyond the range of float32"
    large = spread(np.abs(array) > NEGLIGIBLE * np.abs(array).max(initial=0.0), exact.shape)
    if np.any(large & (exact != 0) & (np.abs(exact) < np.finfo(np.float32).tiny)):
        return f"%{name} would have elements too small for float32"
    return result


class Constants:
    """Constants of the new graph. Equal requests return the same constant."""

    def __init__(self, kind: MessageKind, arrays: dict[Value, Array]):
        self.kind = kind
        self.arrays = arrays
        self._made: dict[tuple[Value, tuple[int, ...], bytes], Value] = {}

    def applied(self, value: Value, message: Message) -> Value:
        """Return a constant with the message applied."""
        key = (value, message.shape, message.tobytes())
        if key not in self._made:
            array = apply(self.kind, value.name, self.arrays[value], message)
            assert not isinstance(array, str)  # the plan has checked it
            self._made[key] = self._add(value.name, array)
        return self._made[key]

    def made(self, name: str, message: Message) -> Value:
        """Return the message itself as a constant, for an operand that was absent."""
        return self._add(name, message.astype(np.float32))

    def _add(self, name: str, array: Array) -> Value:
        value = Value(name, TensorType(DType.FLOAT32, array.shape))
        self.arrays[value] = np.ascontiguousarray(array).reshape(array.shape)
        return value
