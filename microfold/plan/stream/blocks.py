"""Storage that is in use again and again: during events of a stream, and during calls behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from microfold.ir.views import ALIGNMENT
from microfold.plan.bound import CALL_LIMIT
from microfold.plan.exact import solve
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.plan.problem import problem_of, units


@dataclass(frozen=True, eq=False)
class Block(Storage):
    """Storage with holes in its life.

    Attributes:
        times: the moments at which the bytes must hold, as bits: events of the stream first, then the calls
            behind it. `first` and `last` are the outermost ones.
    """

    times: int

    def lives_with(self, other: Storage) -> bool:
        return bool(self.times & other.times) if isinstance(other, Block) else super().lives_with(other)

    def dies_for(self, other: Storage) -> bool:
        """True: that there is leave says so; see `planner`."""
        del other
        return True


def block(label: str, size: int, times: int) -> Block:
    """Storage with these moments, of which there is at least one."""
    return Block(label, size, (times & -times).bit_length() - 1, times.bit_length() - 1, times)


def moments(times: int) -> Iterator[int]:
    """The bits that are set, in order."""
    while times:
        lowest = times & -times
        yield lowest.bit_length() - 1
        times ^= lowest


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
    total = sum(problem.sizes)
    return total - solve(problem, total + 1, max(problem.sizes), CALL_LIMIT).bound


def held_at(
    blocks: Sequence[Block], occupied: Mapping[Block, Mapping[int, tuple[int, int]]], end: int
) -> list[int]:
    """Units that hold something at each moment before `end`.

    Args:
        occupied: the bytes that do, of blocks of which not all do all the time.
    """
    whole, exact = [0] * end, [0] * end
    parted = [False] * end
    for each in blocks:
        parts = occupied.get(each, {})
        for moment in moments(each.times):
            first, last = parts.get(moment, (0, each.size))
            whole[moment] += units(each.size)
            exact[moment] += last - first
            parted[moment] |= last - first < each.size
    # Parts of blocks may meet within a unit.
    return [units(exact[moment]) if parted[moment] else whole[moment] for moment in range(end)]


def busiest(
    blocks: Sequence[Block],
    occupied: Mapping[Block, Mapping[int, tuple[int, int]]],
    overlaps: Sequence[Overlap],
    end: int,
) -> int:
    """Bytes that no arena can go below: the largest need of one moment, overlaps included."""
    by_target: dict[Storage, list[Overlap]] = {}
    for overlap in overlaps:
        by_target.setdefault(overlap.target, []).append(overlap)
    saved = {target: shared_in_call(found) for target, found in by_target.items()}
    held = held_at(blocks, occupied, end)
    # What a result may share with its operands counts in all moments in which it comes to life.
    for target, units_saved in saved.items():
        assert isinstance(target, Block)
        sources = [o.source for o in by_target[target]]
        for moment in moments(target.times):
            if any(isinstance(s, Block) and s.times >> moment & 1 for s in sources):
                held[moment] -= units_saved
    return max(held, default=0) * ALIGNMENT
