"""Bytes that no arena can go below."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.ir.views import ALIGNMENT
from microfold.plan.exact import solve
from microfold.plan.liveness import Storage, alive, alive_during
from microfold.plan.overlap import Overlap
from microfold.plan.problem import problem_of, units

# Steps of the exact search for what is alive in one call, nearly always a handful of storages.
CALL_LIMIT = 20_000
# Steps for what is alive in a few calls, and for all of these together, each of which looks at all storages.
WINDOW_LIMIT, WINDOWS_LIMIT = 20_000, 400_000
# How many calls.
WINDOWS = (3, 6, 12)


def shared(overlaps: Sequence[Overlap]) -> int:
    """Units that storages of one call can share at most.

    Storages that no leave connects share nothing. Those that overlap cover bytes without a hole, and may be
    moved as one: so groups that leave connects are solved each for itself.

    Args:
        overlaps: with targets of the same call.

    Returns:
        More than can be shared where a group has so many storages that its search is ended.
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
    """Return the bytes of the smallest arena for what is alive during each call, from call 0 on.

    Overlaps and scratch are included.
    """
    leave = _by_call(overlaps)
    totals = alive_during(blocks, calls, lambda block: units(block.size))
    return [(total - shared(leave.get(call, ()))) * ALIGNMENT for call, total in enumerate(totals)]


def step_bound(blocks: Sequence[Storage], overlaps: Sequence[Overlap]) -> int:
    """Bytes that no arena can go below: the largest exact need of one call, overlaps and scratch included."""
    leave = _by_call(overlaps)
    bound = 0
    held = alive(blocks, lambda block: units(block.size))
    for moment, total in sorted(held.items(), key=lambda item: -item[1]):
        if total <= bound:
            break
        bound = max(bound, total - shared(leave.get(moment, ())))
    return bound * ALIGNMENT


def _by_call(overlaps: Sequence[Overlap]) -> dict[int, list[Overlap]]:
    """Return the overlaps by the call that computes their target."""
    found: dict[int, list[Overlap]] = {}
    for overlap in overlaps:
        found.setdefault(overlap.target.first, []).append(overlap)
    return found


def window_bound(blocks: Sequence[Storage], overlaps: Sequence[Overlap], limit: int, bound: int) -> int:
    """A better bound: the largest exact need of a few calls that follow each other.

    A storage that lies well for one call may lie badly for the next.

    Args:
        limit: bytes of the smallest known plan: there is nothing to raise beyond it.
        bound: that is known, bytes.
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
