"""Search for short runs of calls that together need more arena than expected.

A single call needs its live storages. Several calls that share tensors can need more together, because each
tensor has only one address. The shortest runs that show this are also valid for most other choices of
kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

# Maximum number of calls in a run. The time for a bound grows exponentially with them. The choices for the
# models of MLPerf Tiny are proved with this number; kws for Cortex-M55 needs it.
LONGEST = 7


class CallRange(NamedTuple):
    """Range of consecutive calls, first and last included."""

    first: int
    last: int


def runs_above(calls: int, is_above: Callable[[int, int], bool]) -> list[CallRange]:
    """Return all shortest runs of calls that need too much; empty if none of at most `LONGEST` calls does.

    Args:
        calls: number of calls.
        is_above: returns whether the calls from `first` to `last` provably need too much.
    """
    for length in range(2, min(calls, LONGEST) + 1):
        runs = [CallRange(first, first + length - 1) for first in range(calls - length + 1)]
        found = [run for run in runs if is_above(run.first, run.last)]
        if found:
            return found
    return []
