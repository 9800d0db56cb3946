"""Proof that two functions from a sum to an output are equal for all sums in an interval.

An output of few bits is a monotone step function of the sum, with at most 255 steps in int8. Two step
functions, and everything computed from them element by element, are constant between the steps of both.
Therefore they are equal for all sums if they are equal at the lowest sum and at each step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from microfold.ir.types import Array

# Function from sums, int64 [points, channels], to outputs of the same shape.
Function = Callable[[Array], Array]

_SAMPLES = 64
# Half of the interval around the expected position in which a step is searched first.
_NEAR = 4


def breakpoints(stairs: Function, low: Array, high: Array, expected: Function | None = None) -> Array:
    """Return the sums at which each channel of a monotone step function reaches each of its values.

    Args:
        low, high: interval of sums to search, int64 [channels].
        expected: function from values, int64 [steps, 1], to approximate sums at which they are reached. The
            search then needs a few evaluations, instead of one for each bit of the interval's length.

    Returns:
        int64 [steps, channels]: for each value between the smallest and the largest of all channels, the
        smallest sum in [low, high] that reaches it; `high` if none does.
    """
    bottom, top = stairs(low[np.newaxis])[0], stairs(high[np.newaxis])[0]
    values = np.arange(int(bottom.min()) + 1, int(top.max()) + 1)[:, np.newaxis]
    first = np.broadcast_to(low, (values.size, low.size)).copy()
    last = np.broadcast_to(high, first.shape).copy()
    if expected is not None:
        middle = expected(values)
        before, behind = np.clip(middle - _NEAR, low, high), np.clip(middle + _NEAR, low, high)
        first = np.where(stairs(before) < values, np.minimum(before + 1, high), first)
        last = np.where(stairs(behind) >= values, behind, last)
    while bool((first < last).any()):
        middle = first + (last - first) // 2
        reached = stairs(middle) >= values
        last = np.where(reached, middle, last)
        first = np.where(reached | (first == last), first, middle + 1)
    return first


def first_difference(
    first: Function, second: Function, stairs: tuple[Function, Function], low: Array, high: Array
) -> tuple[int, int] | None:
    """Return a channel, and a sum in its [low, high], for which two functions differ; None if there is none.

    Args:
        stairs: monotone step functions from which `first` and `second` compute their results, one for each.
        low, high: int64 [channels].
    """
    samples = low + (high - low) * np.arange(_SAMPLES + 1)[:, np.newaxis] // _SAMPLES
    found = _compare(first, second, samples)
    if found is not None:
        return found
    return _compare(first, second, np.concatenate([breakpoints(function, low, high) for function in stairs]))


def _compare(first: Function, second: Function, sums: Array) -> tuple[int, int] | None:
    different = np.argwhere(first(sums) != second(sums))
    if not different.size:
        return None
    point, channel = different[0].tolist()
    return int(channel), int(sums[point, channel])
