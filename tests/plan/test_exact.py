"""The exact planner and its bounds against a search of all offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microfold.ir.views import ALIGNMENT
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.bound import call_needs, step_bound, window_bound
from microfold.plan.check import check_plan
from microfold.plan.exact import solve
from microfold.plan.greedy import Conflicts, climb, place_greedily, place_in_order
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.plan.problem import OffsetConstraint, problem_of

Case = tuple[list[Storage], list[Overlap]]


def _apart(one: Storage, at: int, other: Storage, there: int, leave: Sequence[Overlap]) -> bool:
    """Whether two storages may lie at these bytes."""
    if not one.lives_with(other) or at + one.size <= there or there + other.size <= at:
        return True
    for source, low, target, high in ((one, at, other, there), (other, there, one, at)):
        for overlap in leave:
            if (overlap.source, overlap.target) == (source, target):
                distance = low - high
                return distance == overlap.distance if overlap.exact else distance >= overlap.distance
    return False


def _fits(blocks: Sequence[Storage], leave: Sequence[Overlap], size: int) -> bool:
    """Whether there is a plan with this size: all offsets are tried."""

    def place(offsets: list[int]) -> bool:
        if len(offsets) == len(blocks):
            return True
        block = blocks[len(offsets)]
        return any(
            all(_apart(block, at, b, o, leave) for b, o in zip(blocks, offsets, strict=False))
            and place([*offsets, at])
            for at in range(0, size - block.size + 1, ALIGNMENT)
        )

    return place([])


def _smallest(blocks: Sequence[Storage], leave: Sequence[Overlap]) -> int:
    return next(size for size in itertools.count(0, ALIGNMENT) if _fits(blocks, leave, size))


@st.composite
def few(draw: st.DrawFn) -> Case:
    """Up to five small storages."""
    blocks: list[Storage] = []
    for index in range(draw(st.integers(1, 5))):
        first = draw(st.integers(-1, 4))
        blocks.append(Storage(f"b{index}", draw(st.integers(1, 28)), first, first + draw(st.integers(0, 3))))
    overlaps = [
        Overlap(source, target, draw(st.integers(-20, 20)), exact=draw(st.booleans()))
        for source in blocks
        for target in blocks
        if source.last == target.first and source.first < target.first and draw(st.booleans())
    ]
    return blocks, overlaps


def check(case: Case) -> None:
    """All that the planner says is what trying everything says."""
    blocks, overlaps = case
    smallest = _smallest(blocks, overlaps)
    plan = plan_arena(blocks, overlaps)
    check_plan(blocks, plan)
    assert plan.size == plan.bound == smallest
    problem = problem_of(blocks, overlaps)
    found = solve(problem, sum(problem.sizes) + 1, 0, 1_000_000)
    assert found.size * ALIGNMENT == found.bound * ALIGNMENT == smallest
    bound = step_bound(blocks, overlaps)
    needs: list[int] = []
    for call in range(-1, 8):
        now = [block for block in blocks if block.first <= call <= block.last]
        needs.append(_smallest(now, overlaps))
    assert call_needs(blocks, overlaps, 8) == needs[1:]
    assert bound == max(needs)
    assert bound <= window_bound(blocks, overlaps, smallest, bound) <= smallest


@given(few())
def test_equal_to_trying_everything(case: Case) -> None:
    check(case)


def _all_cases() -> Iterator[Case]:
    """Three storages: all orders of life, of one to three units, with leave by each distance that matters."""
    lives = [(-1, 0), (0, 1), (0, 0), (1, 2), (-1, 2)]
    for chosen in itertools.product(lives, repeat=3):
        for sizes in itertools.product((8, 16, 24), repeat=3):
            blocks = [
                Storage(str(i), s, *life) for i, (s, life) in enumerate(zip(sizes, chosen, strict=True))
            ]
            pairs = [
                (a, b)
                for a, b in itertools.permutations(blocks, 2)
                if a.last == b.first and a.first < b.first
            ]
            leaves: list[tuple[int, bool] | None] = [None, (8, False), (-8, False), (0, True)]
            for given_leave in itertools.product(leaves, repeat=min(len(pairs), 2)):
                yield (
                    blocks,
                    [Overlap(*p, *leave) for p, leave in zip(pairs, given_leave, strict=False) if leave],
                )


@pytest.mark.exhaustive
def test_all_of_three_storages() -> None:
    for case in _all_cases():
        check(case)


def test_step_bound_counts_overlap_and_scratch() -> None:
    """An output over its dying input, with scratch: less than their sum, more than the largest."""
    x, y, scratch = Storage("x", 64, -1, 0), Storage("y", 64, 0, 1), Storage("scratch", 24, 0, 0)
    assert step_bound([x, y, scratch], [Overlap(x, y, 16)]) == 64 + 16 + 24
    assert step_bound([x, y, scratch], []) == 64 + 64 + 24


def _pulled_apart() -> Case:
    """An image that each of two neighbours would like elsewhere."""
    x, y, z = Storage("x", 160, -1, 0), Storage("y", 80, 0, 1), Storage("z", 160, 1, 2)
    low, high = Storage("low", 40, -1, 1), Storage("high", 40, 0, 2)
    return [x, y, z, low, high], [Overlap(x, y, 8, exact=True), Overlap(y, z, 80, exact=True)]


def test_windows_raise_the_bound() -> None:
    blocks, overlaps = _pulled_apart()
    smallest, bound = _smallest(blocks, overlaps), step_bound(blocks, overlaps)
    assert bound < smallest
    assert window_bound(blocks, overlaps, smallest, bound) == smallest


@given(few(), st.integers(0, 60))
def test_a_search_that_ends_early_says_what_may_be_left(case: Case, steps: int) -> None:
    blocks, overlaps = case
    smallest = _smallest(blocks, overlaps)
    limit = sum(block.size + ALIGNMENT for block in blocks) // ALIGNMENT * ALIGNMENT
    found = solve(problem_of(blocks, overlaps), limit // ALIGNMENT + 1, 0, steps)
    assert found.bound * ALIGNMENT <= smallest
    if found.offsets is not None:
        assert found.size * ALIGNMENT >= smallest
        offsets = {b: o * ALIGNMENT for b, o in zip(blocks, found.offsets, strict=True)}
        check_plan(blocks, ArenaPlan(offsets, found.size * ALIGNMENT, 0, tuple(overlaps)))


@settings(max_examples=25)
@given(few())
def test_climbing_never_makes_it_larger(case: Case) -> None:
    blocks, overlaps = case
    conflicts = Conflicts(blocks, overlaps)
    start = place_in_order(conflicts, blocks, grow_down=False)
    assert start is not None
    found = climb(conflicts, start, 0)
    check_plan(blocks, ArenaPlan(found.offsets, found.size, 0, tuple(overlaps)))
    assert found.size <= start.size


def test_climbing_finds_a_better_order() -> None:
    """The storage that is placed last lies on top of a hole that is too small, until it is placed first."""
    long, first, second = Storage("long", 8, 0, 1), Storage("first", 64, 0, 0), Storage("second", 72, 1, 1)
    conflicts = Conflicts([first, long, second], [])
    start = place_in_order(conflicts, [first, long, second], grow_down=False)
    assert start is not None
    assert start.size == 144
    assert climb(conflicts, start, 0).size == 80


def test_plans_of_many_are_the_same_each_time_and_end() -> None:
    """Far too many at once for a proof: limits are counted, not timed."""
    numbers = [(i * 7919) % 2003 + 1 for i in range(60)]
    blocks = [Storage(f"b{i}", n, i, i + 3 + n % 17) for i, n in enumerate(numbers)]
    one, other = plan_arena(blocks, []), plan_arena(blocks, [])
    assert one == other
    check_plan(blocks, one)
    assert one.bound <= one.size <= place_greedily(Conflicts(blocks, [])).size


@pytest.mark.parametrize(("distance", "count"), [(8, 2), (24, 3), (-16, 2)])
def test_leave_takes_the_place_of_what_it_includes(distance: int, count: int) -> None:
    """A source wholly above its target is a case of its own only where leave asks for more distance."""
    x, y = Storage("x", 16, -1, 0), Storage("y", 8, 0, 1)
    problem = problem_of([x, y], [Overlap(x, y, distance)])
    alternatives = problem.alternatives((0, 1))
    assert len(alternatives) == count
    assert ((OffsetConstraint(1, 0, 1),) in alternatives) == (distance in (8, 24))
