"""The planner against the independent checker, and both against hand-made cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from microfold.errors import GraphError
from microfold.ir.views import ALIGNMENT
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.check import check_plan
from microfold.plan.in_time import place_in_time
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Storage], list[Overlap]]:
    """Storages with random lifetimes, and leave to overlap where one dies as the other is born."""
    calls = draw(st.integers(1, 12))
    blocks: list[Storage] = []
    for index in range(draw(st.integers(1, 14))):
        first = draw(st.integers(-1, calls - 1))
        last = draw(st.integers(max(first, 0), calls))
        blocks.append(Storage(f"b{index}", draw(st.integers(1, 5000)), first, last))
    overlaps = [
        Overlap(source, target, draw(st.integers(-source.size, target.size)), exact=draw(st.booleans()))
        for source in blocks
        for target in blocks
        if source is not target and source.last == target.first and source.first < target.first
        if draw(st.booleans())
    ]
    return blocks, overlaps


@given(chains())
def test_every_plan_passes_the_checker(case: tuple[list[Storage], list[Overlap]]) -> None:
    blocks, overlaps = case
    plan = plan_arena(blocks, overlaps)
    check_plan(blocks, plan)
    assert plan.bound <= plan.size
    assert plan.size % ALIGNMENT == plan.bound % ALIGNMENT == 0


@given(chains())
def test_every_plan_in_time_passes_the_checker(case: tuple[list[Storage], list[Overlap]]) -> None:
    blocks, overlaps = case
    offsets, size = place_in_time(blocks, overlaps)
    check_plan(blocks, ArenaPlan(offsets, size, 0, tuple(overlaps)))
    assert size >= max(offset + block.size for block, offset in offsets.items())


def test_many_at_once_are_placed_in_time() -> None:
    """Pairs of a thousand storages are not compared; what dies leaves a hole for what comes."""
    kept = [Storage(f"k{i}", 8 * (i % 5 + 1), i, 2000) for i in range(1000)]
    short = [Storage(f"s{i}", 64, i, i) for i in range(1000)]
    plan = plan_arena([*kept, *short], [])
    check_plan([*kept, *short], plan)
    assert plan.proved and plan.size == sum(b.size for b in kept) + 64


@given(chains())
def test_checker_allows_what_comparing_all_pairs_allows(case: tuple[list[Storage], list[Overlap]]) -> None:
    """Places at random: the checker's replay finds a conflict if and only if some pair has one."""
    blocks, overlaps = case
    size = 20000
    offsets = {block: 8 * ((block.size * 37 + 11 * i) % 900) for i, block in enumerate(blocks)}
    allowed = {(o.source, o.target): o for o in overlaps}

    def apart(one: Storage, other: Storage) -> bool:
        if not one.lives_with(other):
            return True
        if offsets[one] + one.size <= offsets[other] or offsets[other] + other.size <= offsets[one]:
            return True
        for source, target in ((one, other), (other, one)):
            leave = allowed.get((source, target))
            if leave is not None and source.last == target.first:
                distance = offsets[source] - offsets[target]
                return distance == leave.distance if leave.exact else distance >= leave.distance
        return False

    right = all(apart(a, b) for i, a in enumerate(blocks) for b in blocks[:i])
    plan = ArenaPlan(offsets, size, 0, tuple(overlaps))
    if right:
        check_plan(blocks, plan)
    else:
        with pytest.raises(GraphError, match="share bytes"):
            check_plan(blocks, plan)


@given(chains(), st.data())
def test_checker_finds_a_moved_block(case: tuple[list[Storage], list[Overlap]], data: st.DataObject) -> None:
    """A block put on top of a live one is found."""
    blocks, _ = case
    plan = plan_arena(blocks, [])
    pairs = [(a, b) for a in blocks for b in blocks if a is not b and a.lives_with(b)]
    if not pairs:
        return
    one, other = data.draw(st.sampled_from(pairs))
    moved = replace(plan, offsets={**plan.offsets, one: plan.offsets[other]})
    with pytest.raises(GraphError, match=r"share bytes|outside"):
        check_plan(blocks, moved)


def test_in_place() -> None:
    """An elementwise operator's output takes its input's bytes."""
    x, y = Storage("x", 100, -1, 0), Storage("y", 100, 0, 1)
    plan = plan_arena([x, y], [Overlap(x, y, 0)])
    assert plan.offsets[x] == plan.offsets[y]
    assert plan.size == 104


def test_convolution_runs_ahead_of_its_input() -> None:
    """A 3x3 convolution's output starts one row and one pixel before its input."""
    x, y = Storage("x", 16384, -1, 0), Storage("y", 16384, 0, 1)
    plan = plan_arena([x, y], [Overlap(x, y, 528)])
    assert plan.offsets[x] - plan.offsets[y] == 528
    assert plan.size == 16384 + 528


def test_exact_overlap_takes_no_other_distance() -> None:
    """A kernel that finishes channel by channel works in place, or not over its input at all."""
    x, y = Storage("x", 104, -1, 0), Storage("y", 104, 0, 1)
    overlap = Overlap(x, y, 0, exact=True)
    assert plan_arena([x, y], [overlap]).size == 104
    with pytest.raises(GraphError, match="share bytes"):
        check_plan([x, y], ArenaPlan({x: 8, y: 0}, 112, 208, (overlap,)))


def test_overlap_needs_the_input_to_die() -> None:
    """The checker refuses an overlap with a value that is read later."""
    x, y = Storage("x", 64, -1, 1), Storage("y", 64, 0, 1)
    plan = ArenaPlan({x: 0, y: 0}, 64, 128, (Overlap(x, y, 0),))
    with pytest.raises(GraphError, match="share bytes"):
        check_plan([x, y], plan)


def test_checker_finds_misplaced_storage() -> None:
    x = Storage("x", 64, 0, 1)
    with pytest.raises(GraphError, match="has no offset"):
        check_plan([x], ArenaPlan({}, 64, 64))
    with pytest.raises(GraphError, match="unaligned"):
        check_plan([x], ArenaPlan({x: 4}, 72, 64))
    with pytest.raises(GraphError, match="outside"):
        check_plan([x], ArenaPlan({x: 8}, 64, 64))
