"""Whether two ways from a sum to an output give the same integers: a proof, not a sample.

An output of few bits is a staircase over the sums: it never falls when the sum grows, and has at most 255
steps in int8. Two such functions, and all that is computed from either element by element, are constant
between the steps of both: they are equal for every sum if they are at the lowest one and at each step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from microfold.ir.types import Array

# Sums, int64 [points, channels], to outputs of the same shape.
Function = Callable[[Array], Array]

_SAMPLES = 64
# How far from where they are expected steps are looked for first.
_NEAR = 4


def steps(stairs: Function, low: Array, high: Array, expected: Function | None = None) -> Array:
    """The sums at which each channel of a never falling function reaches each of its values.

    Args:
        low, high: int64 [channels]; the sums to look at.
        expected: from values, int64 [steps, 1], to about where they are reached: it takes a few looks then,
            where all of [low, high] takes as many as it has bits.

    Returns:
        int64 [steps, channels]: for each value between the smallest and the largest of all channels, the
        smallest sum in [low, high] that reaches it; `high` where none does.
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
    """A channel, and a sum in its [low, high], for which two functions differ; None if there is none.

    Args:
        stairs: never falling functions, one for each, that the two compute their results from.
        low, high: int64 [channels].
    """
    samples = low + (high - low) * np.arange(_SAMPLES + 1)[:, np.newaxis] // _SAMPLES
    found = _compare(first, second, samples)
    if found is not None:
        return found
    return _compare(first, second, np.concatenate([steps(function, low, high) for function in stairs]))


def _compare(first: Function, second: Function, sums: Array) -> tuple[int, int] | None:
    different = np.argwhere(first(sums) != second(sums))
    if not different.size:
        return None
    point, channel = different[0].tolist()
    return int(channel), int(sums[point, channel])
