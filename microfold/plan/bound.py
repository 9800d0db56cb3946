"""Lower bounds of the arena's size."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.ir.views import ALIGNMENT
from microfold.plan.exact import solve
from microfold.plan.liveness import Storage, alive, alive_during
from microfold.plan.overlap import Overlap
from microfold.plan.problem import problem_of, units

# Step limit of the exact search for the storages that are alive in one call, nearly always a handful.
CALL_LIMIT = 20_000
# Step limits for a window of a few calls, and for all windows together; each window visits all storages.
WINDOW_LIMIT, WINDOWS_LIMIT = 20_000, 400_000
# Numbers of calls in a window.
WINDOWS = (3, 6, 12)


def shared(overlaps: Sequence[Overlap]) -> int:
    """Return the maximum number of units that storages of one call can share.

    Storages that no overlap connects share nothing. Storages that overlap cover their bytes without a hole
    and can be moved as one. Therefore each connected group is solved separately.

    Args:
        overlaps: allowed overlaps with targets of the same call.

    Returns:
        An upper bound if the search for a large group reaches its step limit, otherwise the exact maximum.
    """
    groups: list[dict[Storage, None]] = []
    for overlap in overlaps:
        group = {overlap.source: None, overlap.target: None}
        apart: list[dict[Storage, None]] = []
        for other in groups:
            if group.keys().isdisjoint(other):
                apart.append(other)
            else:
                group = other | group
        groups = [*apart, group]
    saved = 0
    for group in groups:
        problem = problem_of([*group], overlaps)
        total = sum(problem.sizes)
        saved += total - solve(problem, total + 1, max(problem.sizes), CALL_LIMIT).bound
    return saved


def call_needs(blocks: Sequence[Storage], overlaps: Sequence[Overlap], calls: int) -> list[int]:
    """Return the minimum arena size for the storages alive during each call, in bytes, from call 0 on.

    Overlaps and scratch memory are included.
    """
    allowed_overlaps = _by_call(overlaps)
    totals = alive_during(blocks, calls, lambda block: units(block.size))
    return [(total - shared(allowed_overlaps.get(call, ()))) * ALIGNMENT for call, total in enumerate(totals)]


def step_bound(blocks: Sequence[Storage], overlaps: Sequence[Overlap]) -> int:
    """Return the largest exact need of one call in bytes, a lower bound. Includes overlaps and scratch."""
    allowed_overlaps = _by_call(overlaps)
    bound = 0
    held = alive(blocks, lambda block: units(block.size))
    for moment, total in sorted(held.items(), key=lambda item: -item[1]):
        if total <= bound:
            break
        bound = max(bound, total - shared(allowed_overlaps.get(moment, ())))
    return bound * ALIGNMENT


def _by_call(overlaps: Sequence[Overlap]) -> dict[int, list[Overlap]]:
    """Group the overlaps by the call that computes their target."""
    found: dict[int, list[Overlap]] = {}
    for overlap in overlaps:
        found.setdefault(overlap.target.first, []).append(overlap)
    return found


def window_bound(blocks: Sequence[Storage], overlaps: Sequence[Overlap], limit: int, bound: int) -> int:
    """Return a better lower bound: the largest exact need of a few consecutive calls, in bytes.

    An offset that is good for one call may be bad for the next one.

    Args:
        limit: size of the smallest known plan, in bytes; the bound cannot exceed it.
        bound: known lower bound, in bytes.
    """
    ordered = sorted(blocks, key=lambda b: b.first)
    moments = sorted({block.first for block in blocks})
    enough, left = bound // ALIGNMENT, WINDOWS_LIMIT
    for length in WINDOWS:
        for index, first in enumerate(moments[: 1 - length or None]):
            last = moments[index + length - 1]
            left -= len(blocks)
            if enough * ALIGNMENT >= limit or left <= 0:
                return enough * ALIGNMENT
            inside = [block for block in ordered if block.first <= last and block.last >= first]
            problem = problem_of(inside, overlaps)
            found = solve(problem, limit // ALIGNMENT, enough, min(WINDOW_LIMIT, left))
            enough, left = max(enough, found.bound), left - found.steps
    return enough * ALIGNMENT
