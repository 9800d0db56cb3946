"""The planner against the independent checker, and both against hand-made cases."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microfold.errors import GraphError
from microfold.ir.views import ALIGNMENT
from microfold.plan.arena import ArenaPlan, Overlap, plan_arena
from microfold.plan.check import check_plan
from microfold.plan.liveness import Storage, lower_bound


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
    assert plan.lower_bound == lower_bound(blocks)
    assert plan.size % ALIGNMENT == 0


@given(chains())
def test_without_overlap_no_plan_is_below_the_bound(case: tuple[list[Storage], list[Overlap]]) -> None:
    blocks, _ = case
    assert plan_arena(blocks, []).size >= lower_bound(blocks)


@given(chains(), st.data())
def test_checker_finds_a_moved_block(case: tuple[list[Storage], list[Overlap]], data: st.DataObject) -> None:
    """A block put on top of a live one is found."""
    blocks, _ = case
    plan = plan_arena(blocks, [])
    pairs = [(a, b) for a in blocks for b in blocks if a is not b and a.lives_with(b)]
    if not pairs:
        return
    one, other = data.draw(st.sampled_from(pairs))
    moved = dataclasses.replace(plan, offsets={**plan.offsets, one: plan.offsets[other]})
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
    with pytest.raises(GraphError, match="has no place"):
        check_plan([x], ArenaPlan({}, 64, 64))
    with pytest.raises(GraphError, match="unaligned"):
        check_plan([x], ArenaPlan({x: 4}, 72, 64))
    with pytest.raises(GraphError, match="outside"):
        check_plan([x], ArenaPlan({x: 8}, 64, 64))
