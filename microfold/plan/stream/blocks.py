"""Blocks: storages whose lifetime has gaps, at moments of a stream and at calls after it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from microfold.ir.views import ALIGNMENT
from microfold.plan.bound import CALL_LIMIT
from microfold.plan.exact import solve
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.plan.problem import Distance, Pair, PlacementProblem, problem_of, units


class StreamBlock(Storage, frozen=True, dict=True):
    """Storage that is not alive all the time between its first and last moment.

    Attributes:
        times: moments at which the bytes are alive, as a bit mask: first the events of the stream, then the
            calls after it. `first` and `last` are the outermost moments.
    """

    times: int

    @cached_property
    def moments(self) -> NDArray[np.intp]:
        """Moments of `times`, in order."""
        return moments_of(self.times)

    def lives_with(self, other: Storage) -> bool:
        return bool(self.times & other.times) if isinstance(other, StreamBlock) else super().lives_with(other)

    def dies_for(self, other: Storage) -> bool:
        """Return True: an allowed overlap already implies it, see `planner`."""
        del other
        return True


# Bytes in use of blocks that are partly unused at times: at each moment the range [first, last).
Occupied = Mapping[StreamBlock, NDArray[np.int64]]


def block(label: str, size: int, times: int) -> StreamBlock:
    """Return a block with this nonempty set of moments."""
    return StreamBlock(label, size, (times & -times).bit_length() - 1, times.bit_length() - 1, times)


def moments_of(times: int) -> NDArray[np.intp]:
    """Return the indices of the bits that are set, in order."""
    packed = np.frombuffer(times.to_bytes(times.bit_length() // 8 + 1, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


def span(first: int, last: int) -> int:
    """Return the moments from the first to the last, both included, as a bit mask."""
    return (1 << (last + 1)) - (1 << first)


def shared_in_call(overlaps: Sequence[Overlap]) -> int:
    """Return the maximum number of units that the result of a call and its operands can share.

    Args:
        overlaps: allowed overlaps with the same target.
    """
    if not overlaps:
        return 0
    group = dict.fromkeys(block for o in overlaps for block in (o.source, o.target))
    problem = problem_of([*group], overlaps)
    return _shared((*problem.sizes,), (*problem.pairs,), (*problem.allowed_overlaps.items(),))


@functools.lru_cache(maxsize=4096)
def _shared(sizes: tuple[int, ...], pairs: tuple[Pair, ...], leave: tuple[tuple[Pair, Distance], ...]) -> int:
    """Solve the problem of `shared_in_call`, with a cache: calls of a layer mostly pose equal problems."""
    total = sum(sizes)
    problem = PlacementProblem(sizes, pairs, dict(leave))
    return total - solve(problem, total + 1, max(sizes), CALL_LIMIT).bound


def held_at(blocks: Sequence[StreamBlock], occupied: Occupied, end: int) -> NDArray[np.int64]:
    """Return the number of units in use at each moment before `end`."""
    whole, exact = np.zeros(end, np.int64), np.zeros(end, np.int64)
    parted = np.zeros(end, np.bool_)
    for each in blocks:
        at = each.moments
        whole[at] += units(each.size)
        if each not in occupied:
            exact[at] += each.size
            continue
        first, last = occupied[each][:, at]
        exact[at] += last - first
        parted[at] |= last - first < each.size
    # The used parts of two blocks may be in one unit.
    return np.where(parted, -(-exact // ALIGNMENT), whole)


def busiest(blocks: Sequence[StreamBlock], occupied: Occupied, overlaps: Sequence[Overlap], end: int) -> int:
    """Return a lower bound of the arena in bytes: the largest need of one moment, with overlaps."""
    by_target: dict[Storage, list[Overlap]] = {}
    for overlap in overlaps:
        by_target.setdefault(overlap.target, []).append(overlap)
    saved = {target: shared_in_call(found) for target, found in by_target.items()}
    held = held_at(blocks, occupied, end)
    # The overlap of a result with its operands counts in all moments in which the result becomes alive.
    for target, units_saved in saved.items():
        assert isinstance(target, StreamBlock)
        read = 0
        for overlap in by_target[target]:
            assert isinstance(overlap.source, StreamBlock)
            read |= overlap.source.times
        held[moments_of(target.times & read)] -= units_saved
    return int(held.max(initial=0)) * ALIGNMENT
