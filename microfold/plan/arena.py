"""Offsets of storage in the arena, and how small it can be.

The best of several greedy placements is kept where it meets the bound, as nearly always. Else the exact
search and `climb` look for a smaller plan, or the bound is raised to meet it. Where very many storages live
at once, they are placed in one order only (`microfold.plan.in_time`).
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import field

from microfold.ir.views import ALIGNMENT
from microfold.plan.bound import step_bound, window_bound
from microfold.plan.exact import solve
from microfold.plan.greedy import CLIMB_ROUNDS, Conflicts, climb, place_greedily
from microfold.plan.in_time import place_in_time
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.plan.problem import problem_of
from microfold.support.frozen import frozen

# With more neighbours on average, blocks are placed in the order of time only: to compare all with all would
# take too long.
MAX_NEIGHBOURS = 32
# Steps of `climb` where there is no time for more.
SHORT_CLIMB = 60
# Steps of the exact search: at first, and where all else has failed.
FIRST_LIMIT, LAST_LIMIT = 30_000, 600_000


@frozen
class ArenaPlan:
    """Where every storage lies.

    Attributes:
        offsets: bytes from the start of the arena, each a multiple of `ALIGNMENT`.
        size: bytes of the arena.
        bound: bytes that no plan for these storages can go below, with all overlaps that kernels allow.
    """

    offsets: Mapping[Storage, int]
    size: int
    bound: int
    overlaps: tuple[Overlap, ...] = field(default=())

    @property
    def proved(self) -> bool:
        """Whether no plan is smaller."""
        return self.size <= self.bound


def plan_arena(
    blocks: Sequence[Storage], overlaps: Sequence[Overlap], wanted: int | None = None
) -> ArenaPlan:
    """Place all storages.

    Args:
        blocks: storages with their lifetimes, in a deterministic order.
        overlaps: pairs that may share bytes though both live during one call.
        wanted: bytes that are few enough: the search ends where a plan has no more, or all plans have.

    Returns:
        The smallest plan there is, if it says that it is proved; else how small another might be.
    """
    bound = step_bound(blocks, overlaps)
    if _pairs(blocks) > MAX_NEIGHBOURS * len(blocks) / 2:
        offsets, size = place_in_time(blocks, overlaps)
        return ArenaPlan(offsets, size, bound, tuple(overlaps))
    return plan_within(blocks, overlaps, bound, wanted)


def plan_within(
    blocks: Sequence[Storage],
    overlaps: Sequence[Overlap],
    bound: int,
    wanted: int | None = None,
    *,
    thorough: bool = True,
) -> ArenaPlan:
    """The same where a bound is known, and not too many storages live at once.

    Args:
        bound: bytes that no plan can go below.
        thorough: whether the exact search goes on where its first steps and `climb` do not suffice, and
            better bounds are looked for.
    """

    def done(plan: ArenaPlan) -> bool:
        return plan.proved or (wanted is not None and not plan.bound <= wanted < plan.size)

    conflicts = Conflicts(blocks, overlaps)
    greedy = place_greedily(conflicts, max(bound, wanted or 0))
    plan = ArenaPlan(greedy.offsets, greedy.size, bound, tuple(overlaps))
    if not done(plan):
        plan = _search(plan, blocks, FIRST_LIMIT)
    if thorough and not done(plan):
        raised = window_bound(blocks, overlaps, plan.size, plan.bound)
        plan = ArenaPlan(plan.offsets, plan.size, raised, plan.overlaps)
    if not done(plan):
        enough = max(plan.bound, wanted or 0)
        climbed = climb(conflicts, greedy, enough, CLIMB_ROUNDS if thorough else SHORT_CLIMB)
        if climbed.size < plan.size:
            plan = ArenaPlan(climbed.offsets, climbed.size, plan.bound, plan.overlaps)
    return plan if done(plan) or not thorough else _search(plan, blocks, LAST_LIMIT)


def _search(plan: ArenaPlan, blocks: Sequence[Storage], steps: int) -> ArenaPlan:
    """The plan, or a smaller one, with the bound that the search came to."""
    found = solve(problem_of(blocks, plan.overlaps), plan.size // ALIGNMENT, plan.bound // ALIGNMENT, steps)
    bound = found.bound * ALIGNMENT
    if found.offsets is None:
        return ArenaPlan(plan.offsets, plan.size, bound, plan.overlaps)
    offsets = {b: offset * ALIGNMENT for b, offset in zip(blocks, found.offsets, strict=True)}
    return ArenaPlan(offsets, found.size * ALIGNMENT, bound, plan.overlaps)


def _pairs(blocks: Sequence[Storage]) -> int:
    """How many pairs of blocks live together: of each block with those that are there when it comes."""
    ends = sorted(block.last for block in blocks)
    starts = sorted(block.first for block in blocks)
    return sum(index - bisect.bisect_left(ends, first) for index, first in enumerate(starts))
