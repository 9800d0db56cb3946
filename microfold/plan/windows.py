"""Search for short runs of calls that together need more arena than expected.

A single call needs its live storages. Several calls that share tensors can need more together, because each
tensor has only one address. The shortest runs that show this are also valid for most other choices of
kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Run(NamedTuple):
    """Range of consecutive calls, first and last included."""

    first: int
    last: int


def runs_above(calls: int, is_above: Callable[[int, int], bool]) -> list[Run]:
    """Return the earliest and the latest minimal run of calls that need too much; empty if none was found.

    Neither remains too large without its first call or without its last call.

    Args:
        calls: number of calls.
        is_above: returns whether the calls from `first` to `last` provably need too much; must be monotone,
            so that longer runs also do.
    """
    if not is_above(0, calls - 1):
        return []
    last = _least(0, calls - 1, lambda last: is_above(0, last))
    earliest = Run(-_least(-last, 0, lambda first: is_above(-first, last)), last)
    first = -_least(1 - calls, 0, lambda first: is_above(-first, calls - 1))
    latest = Run(first, _least(first, calls - 1, lambda last: is_above(first, last)))
    return [earliest] if earliest == latest else [earliest, latest]


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number for which a monotone predicate holds; it must hold for the highest one."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high
