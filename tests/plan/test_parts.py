"""An arena in several memories: every plan passes the checkers, and the fast memory serves most accesses."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microfold.errors import GraphError
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.check import check_plan
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.plan.parts import PartsPlan, check_parts, plan_parts
from tests.plan.test_arena import chains

Case = tuple[list[Storage], list[Overlap]]


def accesses_of(blocks: Sequence[Storage]) -> dict[Storage, int]:
    return {block: (7919 * (index + 1)) % 1000 for index, block in enumerate(blocks)}


@given(chains(), st.lists(st.integers(0, 6000), min_size=1, max_size=2), st.sampled_from([8, 32]))
def test_every_plan_passes_the_checkers(case: Case, rooms: list[int], alignment: int) -> None:
    blocks, overlaps = case
    whole = plan_coarsely(blocks, overlaps, alignment, None, plan_arena)
    for limit in (None, whole.size, whole.size * 5 // 4):
        plan = plan_parts(blocks, overlaps, accesses_of(blocks), [*rooms, 1 << 20], alignment, whole, limit)
        check_plan(blocks, plan.arena, alignment)
        check_parts(blocks, plan)
        assert all(size <= room for size, room in zip(plan.sizes, rooms, strict=False))
        assert all(size % alignment == 0 for size in plan.sizes)
        assert limit is None or plan.arena.size <= limit


def served(blocks: Sequence[Storage], plan: PartsPlan, accesses: Mapping[Storage, int]) -> int:
    return sum(accesses[block] for block in blocks if plan.arena.offsets[block] < plan.sizes[0])


def test_against_all_ways_to_divide() -> None:
    """Of six storages, the fast memory serves nine tenths of the accesses that it could, or more."""
    found = best = 0
    for seed in range(40):
        blocks = [
            Storage(str(i), 8 * ((seed * 31 + i * 17) % 40 + 1), (seed + i) % 5, (seed + i) % 5 + i % 3)
            for i in range(6)
        ]
        accesses = {block: (seed * 101 + 37 * i * i) % 500 for i, block in enumerate(blocks)}
        plan = plan_parts(blocks, [], accesses, [320, 1 << 20], 8, plan_arena(blocks, []))
        found += served(blocks, plan, accesses)
        best += max(
            sum(accesses[block] for block in chosen)
            for count in range(7)
            for chosen in itertools.combinations(blocks, count)
            if plan_arena(chosen, []).size <= 320
        )
    assert 0.9 * best <= found <= best


def test_what_fits_lies_in_the_first_part() -> None:
    blocks = [Storage("x", 100, -1, 0), Storage("y", 50, 0, 1)]
    overlaps = [Overlap(blocks[0], blocks[1], 0)]
    plan = plan_parts(blocks, overlaps, {}, [104, 1000], 8, plan_arena(blocks, overlaps))
    assert plan.sizes == (104, 0)


def test_a_limit_fills_fast_memories_less_far() -> None:
    """The more bytes are allowed, the more accesses the fast memory serves; the least is one arena's."""
    blocks = [Storage(str(i), 8 * (i % 3 + 1), i, i + 1) for i in range(8)]
    accesses, whole = accesses_of(blocks), plan_arena(blocks, [])
    plans = [
        plan_parts(blocks, [], accesses, [24, 1000], 8, whole, limit)
        for limit in range(whole.size, 2 * whole.size, 8)
    ]
    shares = [served(blocks, plan, accesses) for plan in plans]
    assert shares == sorted(shares) and 0 == shares[0] < shares[-1]


def test_the_checker_finds_what_lies_in_two_parts() -> None:
    x = Storage("x", 40, 0, 1)
    check_parts([x], PartsPlan(ArenaPlan({x: 8}, 64, 0), (48, 16)))
    with pytest.raises(GraphError, match="'x' is in two parts of the arena, across 40"):
        check_parts([x], PartsPlan(ArenaPlan({x: 8}, 64, 0), (40, 24)))
    with pytest.raises(GraphError, match="bytes, but the arena has 64"):
        check_parts([x], PartsPlan(ArenaPlan({x: 0}, 64, 0), (48, 8)))
