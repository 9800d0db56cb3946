"""Plans at multiples of a cache line: against the checker, brute force, and plans at multiples of a word."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microfold.errors import GraphError
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.check import check_plan
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from tests.plan.test_arena import chains

Case = tuple[list[Storage], list[Overlap]]


def coarse(blocks: Sequence[Storage], overlaps: Sequence[Overlap], alignment: int) -> ArenaPlan:
    return plan_coarsely(blocks, overlaps, alignment, None, plan_arena)


@given(chains(), st.sampled_from([8, 16, 32, 64]))
def test_every_plan_passes_the_checker(case: Case, alignment: int) -> None:
    blocks, overlaps = case
    plan = coarse(blocks, overlaps, alignment)
    check_plan(blocks, plan, alignment)
    check_plan(blocks, plan)
    assert plan.bound <= plan.size
    assert plan.size % alignment == plan.bound % alignment == 0
    # Whole lines take no less than words.
    assert plan.size >= plan_arena(blocks, overlaps).bound


@given(chains())
def test_words_are_as_before(case: Case) -> None:
    blocks, overlaps = case
    assert coarse(blocks, overlaps, 8) == plan_arena(blocks, overlaps)


def test_against_all_places() -> None:
    """Three storages and what kernels allow of them: nothing smaller is there."""
    for sizes in itertools.product((1, 32, 33, 90), repeat=3):
        x, y, z = (
            Storage(n, s, *life) for n, s, life in zip("xyz", sizes, ((-1, 0), (0, 1), (1, 2)), strict=True)
        )
        overlaps = [Overlap(x, y, 40), Overlap(y, z, -32, exact=True)]
        blocks = [x, y, z]
        least = min(
            size
            for places in itertools.product(range(0, 257, 32), repeat=3)
            for size in [max(p - -b.size // 32 * 32 for p, b in zip(places, blocks, strict=True))]
            if is_plan(blocks, ArenaPlan(dict(zip(blocks, places, strict=True)), size, 0, tuple(overlaps)))
        )
        plan = coarse(blocks, overlaps, 32)
        assert plan.size == least == plan.bound


def is_plan(blocks: Sequence[Storage], plan: ArenaPlan) -> bool:
    try:
        check_plan(blocks, plan, 32)
    except GraphError:
        return False
    return True


def test_the_checker_finds_shared_lines_and_wrong_starts() -> None:
    x, y = Storage("x", 40, -1, 1), Storage("y", 8, 0, 2)
    check_plan([x, y], ArenaPlan({x: 0, y: 40}, 64, 0))
    with pytest.raises(GraphError, match="unaligned"):
        check_plan([x, y], ArenaPlan({x: 0, y: 40}, 64, 0), 32)
    check_plan([x, y], ArenaPlan({x: 0, y: 64}, 96, 0), 32)
    with pytest.raises(GraphError, match="share bytes"):
        check_plan([x, y], ArenaPlan({x: 0, y: 32}, 96, 0), 32)
