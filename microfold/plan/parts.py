"""An arena in several memories: which storages lie in the fastest one, which in the next.

Each part is an arena of its own, planned as any other; the whole is one plan in which a part begins where
the one before ends. So whatever checks plans checks this one, too. Kernels' leave to overlap counts within a
part.

Storages are taken one after the other, and put into the fastest memory in which a plan with all that is there
already has room: as storages of different times share bytes, that is more than their sum would allow. Of
several orders, by accesses for each byte, by accesses, by size, the one is kept that leaves most accesses to
fast memories.

Storages in different memories share no bytes, so that parts are larger than one arena would be. Under a
limit, fast memories are filled less far until the parts fit it; in the end the whole lies in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from microfold.errors import GraphError
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap
from microfold.support.frozen import frozen

# Under a limit, fast memories are filled by so many parts of their room.
STEPS = 8


@frozen
class PartsPlan:
    """The whole, and the bytes of each part."""

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
    """Place storages in memories.

    Args:
        accesses: of one run, estimated.
        rooms: bytes of the memories, the fastest first; the last one takes all that is left.
        alignment: of all storages, bytes.
        whole: all of them in one arena.
        limit: bytes that the parts may have together, as many as the whole has at least; None: any.
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
    # The fastest memory that holds all of it.
    home = next((i for i, room in enumerate(rooms[:-1]) if whole.size <= room), len(rooms) - 1)
    return PartsPlan(whole, tuple(whole.size if i == home else 0 for i in range(len(rooms))))


def _less_and_less(rooms: Sequence[int]) -> Iterator[list[int]]:
    """The rooms, then less and less of the fastest memory; without it, likewise of the next one."""
    yield [*rooms]
    for index, room in enumerate(rooms):
        for step in reversed(range(STEPS)):
            yield [*(0 for _ in rooms[:index]), room * step // STEPS, *rooms[index + 1 :]]


def _one_after_the_other(parts: Sequence[ArenaPlan], overlaps: Sequence[Overlap], bound: int) -> PartsPlan:
    """The parts as one plan."""
    offsets: dict[Storage, int] = {}
    start = 0
    for part in parts:
        offsets |= {block: start + offset for block, offset in part.offsets.items()}
        start += part.size
    return PartsPlan(ArenaPlan(offsets, start, bound, tuple(overlaps)), tuple(p.size for p in parts))


def check_parts(blocks: Sequence[Storage], plan: PartsPlan) -> None:
    """Verify that each storage lies within one part. Shares no code with the planner.

    Raises:
        GraphError: lists those that do not.
    """
    ends = [sum(plan.sizes[: index + 1]) for index in range(len(plan.sizes))]
    faults = [
        f"{block.label!r} lies in two parts of the arena, across {end}"
        for block in blocks
        for end in ends
        if plan.arena.offsets[block] < end < plan.arena.offsets[block] + block.size
    ]
    if ends[-1:] != [plan.arena.size]:
        faults.append(f"parts of {list(plan.sizes)} bytes are not the arena's {plan.arena.size}")
    if faults:
        raise GraphError("the parts of the arena are wrong: " + "; ".join(faults))
