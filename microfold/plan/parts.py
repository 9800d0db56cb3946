"""Segmented arena: storages are distributed over several memories, the fastest first.

Each part is a separate arena with its own plan. The result is a single plan in which each part begins at the
end of the one before, so that the checkers of plans also apply to it. Allowed overlaps apply only within a
part.

Storages are assigned one after the other to the fastest memory in which a plan with all earlier storages
still fits. Storages of different times share bytes, so that more fit than the sum of their sizes suggests.
Three orders are tried: by accesses per byte, by accesses, and by size. The best one leaves most accesses to
fast memories.

Storages in different memories share no bytes, so that the parts together are larger than one arena. If a
limit applies, less of the fast memories is used until the parts meet it; as last resort all storages are in
one memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from microfold.errors import GraphError
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap

# Number of steps in which the usable size of fast memories is reduced to meet a limit.
STEPS = 8


class PartsPlan(Struct, frozen=True):
    """Plan of the whole arena, and the size of each part in bytes."""

    arena: ArenaPlan
    sizes: tuple[int, ...]


def plan_parts(
    blocks: Sequence[Storage],
    overlaps: Sequence[Overlap],
    accesses: Mapping[Storage, int],
    rooms: Sequence[int],
    alignment: int,
    whole: ArenaPlan,
    limit: int | None = None,
) -> PartsPlan:
    """Distribute storages over memories.

    Args:
        accesses: estimated accesses of one run.
        rooms: sizes of the memories in bytes, the fastest first; the last one gets all remaining storages.
        alignment: alignment of all storages, in bytes.
        whole: plan of all storages in one arena.
        limit: maximum total size of the parts in bytes, at least the size of `whole`; None: no limit.
    """

    def plan(part: Sequence[Storage], wanted: int | None = None) -> ArenaPlan:
        ordered = [block for block in blocks if block in {*part}]
        inside = [o for o in overlaps if o.source in {*part} and o.target in {*part}]
        return plan_coarsely(ordered, inside, alignment, wanted, plan_arena)

    def fill(order: Sequence[Storage], taken_of: Sequence[int]) -> list[list[Storage]]:
        left, parts = list(order), list[list[Storage]]()
        for room in taken_of:
            taken: list[Storage] = []
            over: list[Storage] = []
            for block in left:
                fits = block.size <= room and plan([*taken, block], room).size <= room
                (taken if fits else over).append(block)
            parts.append(taken)
            left = over
        return [*parts, left]

    def served(parts: Sequence[ArenaPlan]) -> list[int]:
        return [sum(accesses.get(block, 0) for block in part.offsets) for part in parts]

    orders = (
        sorted(blocks, key=lambda block: -accesses.get(block, 0) / max(block.size, 1)),
        sorted(blocks, key=lambda block: -accesses.get(block, 0)),
        sorted(blocks, key=lambda block: -block.size),
    )
    for taken_of in _less_and_less(rooms[:-1]):
        ways = [[plan(part) for part in fill(order, taken_of)] for order in orders]
        fitting = [way for way in ways if limit is None or sum(part.size for part in way) <= limit]
        if fitting:
            return _one_after_the_other(max(fitting, key=served), overlaps, whole.bound)
    # The fastest memory that holds the whole arena.
    home = next((i for i, room in enumerate(rooms[:-1]) if whole.size <= room), len(rooms) - 1)
    return PartsPlan(whole, tuple(whole.size if i == home else 0 for i in range(len(rooms))))


def _less_and_less(rooms: Sequence[int]) -> Iterator[list[int]]:
    """Yield the sizes, then less and less of the fastest memory; then the same for the next memories."""
    yield [*rooms]
    for index, room in enumerate(rooms):
        for step in reversed(range(STEPS)):
            yield [*(0 for _ in rooms[:index]), room * step // STEPS, *rooms[index + 1 :]]


def _one_after_the_other(parts: Sequence[ArenaPlan], overlaps: Sequence[Overlap], bound: int) -> PartsPlan:
    """Join the parts into one plan."""
    offsets: dict[Storage, int] = {}
    start = 0
    for part in parts:
        offsets |= {block: start + offset for block, offset in part.offsets.items()}
        start += part.size
    return PartsPlan(ArenaPlan(offsets, start, bound, tuple(overlaps)), tuple(p.size for p in parts))


def check_parts(blocks: Sequence[Storage], plan: PartsPlan) -> None:
    """Verify that each storage is within one part. The checker shares no code with the planner.

    Raises:
        GraphError: lists all other storages.
    """
    ends = [sum(plan.sizes[: index + 1]) for index in range(len(plan.sizes))]
    faults = [
        f"{block.label!r} is in two parts of the arena, across {end}"
        for block in blocks
        for end in ends
        if plan.arena.offsets[block] < end < plan.arena.offsets[block] + block.size
    ]
    if ends[-1:] != [plan.arena.size]:
        faults.append(f"the parts have {list(plan.sizes)} bytes, but the arena has {plan.arena.size}")
    if faults:
        raise GraphError("the parts of the arena are wrong: " + "; ".join(faults))
