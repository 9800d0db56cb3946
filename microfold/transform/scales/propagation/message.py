"""Messages: per-axis factors or summands of a value that some other node is asked to account for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from microfold.ir.types import Shape

# Of the value's rank; along each axis either as long as the value, or 1 where all elements are alike.
Message = NDArray[np.float64]

# Equal but for the order of their products, which are rounded to float32 in the end.
AGREEMENT = 1e-12


def minimal(array: Message) -> Message:
    """The same message, of length 1 along every axis along which it does not vary."""
    for axis, size in enumerate(array.shape):
        first = array.take([0], axis=axis) if size > 1 else array
        if size > 1 and bool(np.all(array == first)):
            array = first
    return array


def raised(array: Message, rank: int) -> Message:
    """With leading axes of length 1, as broadcasting adds them."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def lowered(array: Message, rank: int) -> Message:
    """Without leading axes of length 1, but not of a lower rank than given."""
    while array.ndim > rank and array.shape[0] == 1:
        array = array[0]
    return array


def varying_axes(message: Message) -> list[int]:
    """The axes along which the message is not constant."""
    return [axis for axis, size in enumerate(message.shape) if size > 1]


def vector(message: Message, axis: int, size: int) -> Message:
    """The elements along an axis, as many as the value has; it must not vary along others."""
    along = message.reshape(message.shape[axis])
    return np.broadcast_to(along, (size,))


def spread(message: Message, shape: Shape) -> Message:
    """Of the value's full shape."""
    return np.broadcast_to(message, shape)


def agree(first: Message, second: Message) -> bool:
    """They mean the same."""
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=AGREEMENT, atol=0.0))


def equal(first: Message | None, second: Message | None) -> bool:
    """They are the same numbers, or both absent."""
    if first is None or second is None:
        return first is second
    return first.shape == second.shape and bool(np.array_equal(first, second))


def describe(message: Message) -> str:
    """For reasons: the number, or the range of numbers and the axes."""
    low, high = float(message.min()), float(message.max())
    if message.size == 1:
        return f"{low:g}"
    axes = varying_axes(message)
    return f"{low:g} to {high:g} along {'axis' if len(axes) == 1 else 'axes'} {', '.join(map(str, axes))}"
