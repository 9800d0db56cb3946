"""Short runs of calls that together need more arena than a plan was thought to need.

A call needs what is alive in it. Calls that share tensors can need more together, since each tensor lies in
one place. The shortest runs of calls that show it hold for most other choices of kernels, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

# Lengths of runs that are tried, in calls; the last one tried is the whole model.
LENGTHS = (2, 3, 4, 6, 9)
# The number of runs that are returned, all of the shortest length at which there are any.
MOST_RUNS = 4


class Run(NamedTuple):
    """Calls from a first to a last one, and the bytes of arena that they need at least."""

    first: int
    last: int
    size: int


def runs_above(calls: int, known: int, bound_of: Callable[[int, int], int]) -> list[Run]:
    """Return the shortest runs of calls that need more than the known bytes; empty: none was found.

    Args:
        calls: their number.
        bound_of: returns bytes that no plan for the calls from a first to a last one can go below.
    """
    for length in (*(each for each in LENGTHS if each < calls), calls):
        starts = range(calls - length + 1)
        runs = [Run(first, first + length - 1, bound_of(first, first + length - 1)) for first in starts]
        if found := [run for run in runs if run.size > known]:
            return sorted(found, key=lambda run: (-run.size, run.first))[:MOST_RUNS]
    return []
