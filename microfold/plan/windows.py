"""Short runs of calls that together need more arena than a plan was thought to need.

A call needs what is alive in it. Calls that share tensors can need more together, since each tensor lies in
one place. The shortest runs of calls that show it hold for most other choices of kernels, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Run(NamedTuple):
    """Calls from a first to a last one."""

    first: int
    last: int


def runs_above(calls: int, is_above: Callable[[int, int], bool]) -> list[Run]:
    """Return the earliest and the latest short run of calls that need too much; empty: none was found.

    Neither stays too large without its first call, nor without its last one.

    Args:
        calls: their number.
        is_above: tells whether the calls from a first to a last one are known to need too much; where some
            do, more calls do as well.
    """
    if not is_above(0, calls - 1):
        return []
    last = _least(0, calls - 1, lambda last: is_above(0, last))
    earliest = Run(-_least(-last, 0, lambda first: is_above(-first, last)), last)
    first = -_least(1 - calls, 0, lambda first: is_above(-first, calls - 1))
    latest = Run(first, _least(first, calls - 1, lambda last: is_above(first, last)))
    return [earliest] if earliest == latest else [earliest, latest]


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number for which something holds; it holds for the highest one."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high
