"""Placement in memories: against all placements, and the checker against wrong ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from microfold.errors import GraphError, InputError
from microfold.plan.regions import RegionItem, RegionPlan, check_regions, plan_regions
from microfold.target.memories import TargetMemory

FAST = TargetMemory("fast", 100, 1, ("data", "constants"), "slow", "FAST")
FLASH = TargetMemory("flash", 200, 4, ("constants",), "", "FLASH")
SLOW = TargetMemory("slow", 1000, 20, ("constants",), "", "SLOW")
ALL = (SLOW, FAST, FLASH)


def constant(label: str, size: int, accesses: int) -> RegionItem:
    return RegionItem(label, size, accesses, "constants")


def cost(plan: RegionPlan) -> int:
    return sum(item.accesses * memory.cycles for item, memory in plan.places.items())


def valid(items: Sequence[RegionItem], plan: RegionPlan) -> bool:
    try:
        check_regions(items, plan)
    except GraphError:
        return False
    return True


def best(items: Sequence[RegionItem], memories: Sequence[TargetMemory]) -> int | None:
    """The least cost of all placements."""
    plans = (
        RegionPlan(tuple(memories), dict(zip(items, homes, strict=True)))
        for homes in itertools.product(memories, repeat=len(items))
    )
    return min((cost(plan) for plan in plans if valid(items, plan)), default=None)


def test_what_is_read_most_is_in_the_fastest_memory() -> None:
    context = RegionItem("context", 40, 10, "data")
    items = [constant("cold", 56, 10), constant("warm", 160, 999), constant("hot", 56, 5000), context]
    plan = plan_regions(items, ALL)
    assert [plan.places[item].name for item in items] == ["slow", "flash", "fast", "fast"]
    # The hot one is loaded from the slow memory; the context is not.
    assert (plan.used(FAST, "data"), plan.used(FAST, "constants"), plan.fill(FAST)) == (40, 56, 96)
    assert (plan.used(SLOW, "load"), plan.fill(SLOW)) == (56, 112)


def test_against_all_placements() -> None:
    random = Random(7)
    placed, cycles, least = 0, 0, 0
    for _ in range(60):
        slow = replace(SLOW, size=random.choice([64, 300, 1000]))
        items = [
            constant(str(i), 8 * random.randrange(1, 14), random.randrange(1000))
            for i in range(random.randrange(1, 6))
        ]
        items.append(RegionItem("context", 8 * random.randrange(1, 12), 100, "data"))
        wanted = best(items, (FAST, FLASH, slow))
        try:
            plan = plan_regions(items, (FAST, FLASH, slow))
        except InputError:
            continue
        assert wanted is not None and valid(items, plan)
        assert cost(plan) <= 1.5 * wanted
        placed, cycles, least = placed + 1, cycles + cost(plan), least + wanted
    assert placed >= 45
    assert cycles <= 1.02 * least


def test_every_wrong_placement_is_found() -> None:
    context = RegionItem("context", 48, 10, "data")
    items = [constant("hot", 48, 900), constant("a", 104, 50), constant("b", 88, 60), context]
    plan = plan_regions(items, ALL)
    check_regions(items, plan)
    wrong = 0
    for item, home in itertools.product(items, (*ALL, TargetMemory("other", 999, 1, ("data", "constants")))):
        moved = RegionPlan(plan.memories, {**plan.places, item: home})
        taken = sum(i.size for i, m in moved.places.items() if m is home)
        if home not in ALL or item.use not in home.use or taken > home.size:
            wrong += 1
            assert not valid(items, moved), (item.label, home.name)
    assert wrong >= 8
    assert not valid([*items, constant("forgotten", 8, 1)], plan)
    # Too much is loaded from a memory that has room for what it holds itself.
    small = replace(SLOW, size=40)
    assert not valid(items[:1], RegionPlan((FAST, small), {items[0]: FAST}))


@pytest.mark.parametrize(
    ("items", "memories", "message"),
    [
        (
            [RegionItem("the context", 104, 1, "data")],
            ALL,
            r"the context must fit into one memory for data; it has 104 bytes, .* has 100: choose --ram",
        ),
        (
            [RegionItem("the context", 8, 1, "data")],
            (FLASH, SLOW),
            r"the context requires a memory for data, .*none: give one of flash, slow this use",
        ),
        ([constant("w", 1008, 1)], ALL, r"w must fit into one memory for constants; it has 1008 .* slow"),
        (
            [constant("v", 160, 2), constant("w", 120, 1)],
            (FLASH,),
            r"all constants must fit.*; w has 120 bytes; free: flash 40 of 200: use --optimize size",
        ),
    ],
)
def test_what_does_not_fit(items: list[RegionItem], memories: tuple[TargetMemory, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_regions(items, memories)
