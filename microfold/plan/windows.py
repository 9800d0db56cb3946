"""Short runs of calls that together need more arena than a plan was thought to need.

A call needs what is alive in it. Calls that share tensors can need more together, since each tensor lies in
one place. The shortest runs of calls that show it hold for most other choices of kernels, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

# Lengths of runs that are tried, in calls; the last one tried is the whole model.
LENGTHS = (2, 3, 4, 6, 9)
# The number of runs that are returned, all of the shortest length at which there are any.
MOST_RUNS = 4


class Run(NamedTuple):
    """Calls from a first to a last one, and the bytes of arena that they need at least."""

    first: int
    last: int
    size: int


class Lives(Protocol):
    """Bytes that live from a first to a last call."""

    @property
    def size(self) -> int: ...

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


_Block = TypeVar("_Block", bound=Lives)


def runs_above(
    blocks: Sequence[_Block], calls: int, known: int, bound_of: Callable[[Sequence[_Block]], int]
) -> list[Run]:
    """Return the shortest runs of calls that need more than the known bytes; empty: none was found.

    Args:
        calls: their number.
        bound_of: returns the bytes that no plan of some blocks can go below.
    """
    for length in (*(each for each in LENGTHS if each < calls), calls):
        found: list[Run] = []
        for first in range(calls - length + 1):
            last = first + length - 1
            inside = [block for block in blocks if block.first <= last and block.last >= first]
            if sum(block.size for block in inside) > known and (size := bound_of(inside)) > known:
                found.append(Run(first, last, size))
        if found:
            return sorted(found, key=lambda run: (-run.size, run.first))[:MOST_RUNS]
    return []
