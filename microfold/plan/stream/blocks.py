"""Storage that is in use again and again: during events of a stream, and during calls behind it."""

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
from microfold.plan.problem import Distance, Pair, Problem, problem_of, units
from microfold.support.frozen import frozen


@frozen(eq=False)
class Block(Storage):
    """Storage with holes in its life.

    Attributes:
        times: the moments at which the bytes must hold, as bits: events of the stream first, then the calls
            behind it. `first` and `last` are the outermost ones.
    """

    times: int

    @cached_property
    def moments(self) -> NDArray[np.intp]:
        """The moments of `times`, in order."""
        return moments_of(self.times)

    def lives_with(self, other: Storage) -> bool:
        return bool(self.times & other.times) if isinstance(other, Block) else super().lives_with(other)

    def dies_for(self, other: Storage) -> bool:
        """True: that there is leave says so; see `planner`."""
        del other
        return True


# Of blocks of which not all bytes hold something all the time: at each moment the first one that does, and
# the one behind the last.
Occupied = Mapping[Block, NDArray[np.int64]]


def block(label: str, size: int, times: int) -> Block:
    """Storage with these moments, of which there is at least one."""
    return Block(label, size, (times & -times).bit_length() - 1, times.bit_length() - 1, times)


def moments_of(times: int) -> NDArray[np.intp]:
    """The bits that are set, in order."""
    packed = np.frombuffer(times.to_bytes(times.bit_length() // 8 + 1, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


def span(first: int, last: int) -> int:
    """The moments from the first to the last, both included."""
    return (1 << (last + 1)) - (1 << first)


def shared_in_call(overlaps: Sequence[Overlap]) -> int:
    """Units that the result of a call and what it is computed from can share at most.

    Args:
        overlaps: all with the same target.
    """
    if not overlaps:
        return 0
    group = dict.fromkeys(block for o in overlaps for block in (o.source, o.target))
    problem = problem_of([*group], overlaps)
    return _shared((*problem.sizes,), (*problem.pairs,), (*problem.leave.items(),))


@functools.lru_cache(maxsize=4096)
def _shared(sizes: tuple[int, ...], pairs: tuple[Pair, ...], leave: tuple[tuple[Pair, Distance], ...]) -> int:
    """The same of a problem; calls of a layer mostly pose equal ones."""
    total = sum(sizes)
    problem = Problem(sizes, pairs, dict(leave))
    return total - solve(problem, total + 1, max(sizes), CALL_LIMIT).bound


def held_at(blocks: Sequence[Block], occupied: Occupied, end: int) -> NDArray[np.int64]:
    """Units that hold something at each moment before `end`."""
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
    # Parts of blocks may meet within a unit.
    return np.where(parted, -(-exact // ALIGNMENT), whole)


def busiest(blocks: Sequence[Block], occupied: Occupied, overlaps: Sequence[Overlap], end: int) -> int:
    """Bytes that no arena can go below: the largest need of one moment, overlaps included."""
    by_target: dict[Storage, list[Overlap]] = {}
    for overlap in overlaps:
        by_target.setdefault(overlap.target, []).append(overlap)
    saved = {target: shared_in_call(found) for target, found in by_target.items()}
    held = held_at(blocks, occupied, end)
    # What a result may share with its operands counts in all moments in which it comes to life.
    for target, units_saved in saved.items():
        assert isinstance(target, Block)
        read = 0
        for overlap in by_target[target]:
            assert isinstance(overlap.source, Block)
            read |= overlap.source.times
        held[moments_of(target.times & read)] -= units_saved
    return int(held.max(initial=0)) * ALIGNMENT
