"""Messages: factors or summands of a value, per axis, that another node has to apply."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from microfold.ir.types import Shape

# Array of the value's rank. Along each axis its length is the value's, or 1 if all elements are equal.
Message = NDArray[np.float64]

# Relative tolerance for messages that differ only in the order of products; results are rounded to float32.
AGREEMENT = 1e-12


def minimal(array: Message) -> Message:
    """Reduce a message to length 1 along every axis along which it does not vary."""
    for axis, size in enumerate(array.shape):
        first = array.take([0], axis=axis) if size > 1 else array
        if size > 1 and bool(np.all(array == first)):
            array = first
    return array


def raised(array: Message, rank: int) -> Message:
    """Add leading axes of length 1, as broadcasting does."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def lowered(array: Message, rank: int) -> Message:
    """Remove leading axes of length 1 down to the given rank."""
    while array.ndim > rank and array.shape[0] == 1:
        array = array[0]
    return array


def varying_axes(message: Message) -> list[int]:
    """Return the axes along which the message varies."""
    return [axis for axis, size in enumerate(message.shape) if size > 1]


def vector(message: Message, axis: int, size: int) -> Message:
    """Return the message along an axis, with the value's length. It must not vary along other axes."""
    along = message.reshape(message.shape[axis])
    return np.broadcast_to(along, (size,))


def spread(message: Message, shape: Shape) -> Message:
    """Broadcast a message to the value's full shape."""
    return np.broadcast_to(message, shape)


def agree(first: Message, second: Message) -> bool:
    """Return whether two messages are equal within `AGREEMENT`."""
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=AGREEMENT, atol=0.0))


def equal(first: Message | None, second: Message | None) -> bool:
    """Return whether two messages are bitwise equal numbers, or both absent."""
    if first is None or second is None:
        return first is second
    return first.shape == second.shape and bool(np.array_equal(first, second))


def describe(message: Message) -> str:
    """Describe a message in reasons: the number, or the range of numbers and the axes."""
    low, high = float(message.min()), float(message.max())
    if message.size == 1:
        return f"{low:g}"
    axes = varying_axes(message)
    return f"{low:g} to {high:g} along {'axis' if len(axes) == 1 else 'axes'} {', '.join(map(str, axes))}"
