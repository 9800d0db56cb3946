"""Arena planner: offsets of all storages in the arena, and a lower bound of the arena's size.

A plan whose size equals the lower bound is proved minimal. The planner stops at the first step that closes
the gap between plan and bound; nearly all models stop after step 1::

                          step                               improves
    1  place_greedily     best of several placement orders   plan
    2  exact.solve        branch and bound, few steps        plan and bound
    3  window_bound       exact need of a few calls          bound
    4  climb              random changes of the order        plan
    5  exact.solve        branch and bound, many steps       plan and bound

Step 1 starts from `step_bound`, the largest exact need of a single call. If very many storages are alive at
once, comparing all pairs is too slow, and `microfold.plan.in_time` places them in a single order instead.

All limits count steps, never time, so the plan is the same on every machine.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from microfold.ir.views import ALIGNMENT
from microfold.plan.bound import step_bound, window_bound
from microfold.plan.exact import solve
from microfold.plan.greedy import CLIMB_ROUNDS, Conflicts, climb, place_greedily
from microfold.plan.in_time import place_in_time
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.plan.problem import problem_of

# Largest mean number of other storages with which a storage is alive together. Beyond it, storages are only
# placed in the order of time.
MAX_MEAN_NEIGHBOURS = 32
# Rounds of `climb` for trial plans; the search for a streaming schedule makes many of them.
QUICK_CLIMB_ROUNDS = 60
# Step limits of the exact search: before the other steps, and after all of them have failed.
FIRST_LIMIT, LAST_LIMIT = 30_000, 600_000


class ArenaPlan(Struct, frozen=True):
    """Offsets of all storages in the arena.

    Attributes:
        offsets: offset from the start of the arena, in bytes, a multiple of `ALIGNMENT`.
        size: size of the arena, in bytes.
        bound: proved lower bound of the size of every plan for these storages and overlaps, in bytes.
        overlaps: overlaps between input and output that the plan was allowed to use.
    """

    offsets: Mapping[Storage, int]
    size: int
    bound: int
    overlaps: tuple[Overlap, ...] = field(default=())

    @property
    def proved(self) -> bool:
        """Whether the plan is proved to be the smallest possible one."""
        return self.size <= self.bound


def plan_arena(
    blocks: Sequence[Storage], overlaps: Sequence[Overlap], wanted: int | None = None
) -> ArenaPlan:
    """Place all storages.

    Args:
        blocks: storages with their lifetimes, in a deterministic order.
        overlaps: pairs of storages that may share bytes although both are alive during one call.
        wanted: size in bytes that is small enough for the caller. The search ends as soon as a plan fits into
            it, or as soon as the bound shows that none does.

    Returns:
        The best plan found. It is the smallest one if `ArenaPlan.proved`.
    """
    bound = step_bound(blocks, overlaps)
    if _has_many_pairs(blocks):
        offsets, size = place_in_time(blocks, overlaps)
        return ArenaPlan(offsets, size, bound, tuple(overlaps))
    return plan_from_bound(blocks, overlaps, bound, wanted)


def bound_arena(
    blocks: Sequence[Storage], overlaps: Sequence[Overlap], wanted: int | None = None
) -> ArenaPlan:
    """Place all storages with few steps, for callers that only need a lower bound; see `plan_arena`."""
    if _has_many_pairs(blocks):
        return plan_arena(blocks, overlaps, wanted)
    bound = step_bound(blocks, overlaps)
    greedy = place_greedily(Conflicts(blocks, overlaps), max(bound, wanted or 0))
    plan = ArenaPlan(greedy.offsets, greedy.size, bound, tuple(overlaps))
    return plan if _is_done(plan, wanted) else _search_exactly(plan, blocks, FIRST_LIMIT)


def plan_from_bound(
    blocks: Sequence[Storage],
    overlaps: Sequence[Overlap],
    bound: int,
    wanted: int | None = None,
    *,
    thorough: bool = True,
) -> ArenaPlan:
    """Place all storages, given a lower bound. For inputs in which not too many storages are alive at once.

    Args:
        blocks, overlaps, wanted: as in `plan_arena`.
        bound: proved lower bound of the arena's size, in bytes.
        thorough: whether to run all steps. Otherwise steps 3 and 5 are skipped, and step 4 is shorter.
    """

    conflicts = Conflicts(blocks, overlaps)
    greedy = place_greedily(conflicts, max(bound, wanted or 0))
    plan = ArenaPlan(greedy.offsets, greedy.size, bound, tuple(overlaps))
    if not _is_done(plan, wanted):
        plan = _search_exactly(plan, blocks, FIRST_LIMIT)
    if thorough and not _is_done(plan, wanted):
        raised = window_bound(blocks, overlaps, plan.size, plan.bound)
        plan = ArenaPlan(plan.offsets, plan.size, raised, plan.overlaps)
    if not _is_done(plan, wanted):
        enough = max(plan.bound, wanted or 0)
        climbed = climb(conflicts, greedy, enough, CLIMB_ROUNDS if thorough else QUICK_CLIMB_ROUNDS)
        if climbed.size < plan.size:
            plan = ArenaPlan(climbed.offsets, climbed.size, plan.bound, plan.overlaps)
    return plan if _is_done(plan, wanted) or not thorough else _search_exactly(plan, blocks, LAST_LIMIT)


def _is_done(plan: ArenaPlan, wanted: int | None) -> bool:
    """Return whether the plan is minimal, or fits into `wanted`, or the bound says that no plan does."""
    return plan.proved or (wanted is not None and not plan.bound <= wanted < plan.size)


def _search_exactly(plan: ArenaPlan, blocks: Sequence[Storage], steps: int) -> ArenaPlan:
    """Run branch and bound below the plan's size.

    Returns:
        The plan, or a smaller one, with the bound that the search has proved.
    """
    found = solve(problem_of(blocks, plan.overlaps), plan.size // ALIGNMENT, plan.bound // ALIGNMENT, steps)
    bound = found.bound * ALIGNMENT
    if found.offsets is None:
        return ArenaPlan(plan.offsets, plan.size, bound, plan.overlaps)
    offsets = {b: offset * ALIGNMENT for b, offset in zip(blocks, found.offsets, strict=True)}
    return ArenaPlan(offsets, found.size * ALIGNMENT, bound, plan.overlaps)


def _has_many_pairs(blocks: Sequence[Storage]) -> bool:
    """Return whether comparing all pairs of storages that are alive together would be too slow."""
    return _count_conflicts(blocks) > MAX_MEAN_NEIGHBOURS * len(blocks) / 2


def _count_conflicts(blocks: Sequence[Storage]) -> int:
    """Count the pairs of storages whose lifetimes overlap, in O(n log n).

    Each pair is counted when the later of the two begins: it conflicts with all storages that have begun and
    not yet ended.
    """
    ends = sorted(block.last for block in blocks)
    starts = sorted(block.first for block in blocks)
    return sum(index - bisect.bisect_left(ends, first) for index, first in enumerate(starts))
