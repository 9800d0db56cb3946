"""An arena in several memories: which storages lie in the fastest one, which in the next.

Each part is an arena of its own, planned as any other; the whole is one plan in which a part begins where
the one before ends. So whatever checks plans checks this one, too. Kernels' leave to overlap counts within a
part.

Storages are taken one after the other, and put into the fastest memory in which a plan with all that is there
already has room: as storages of different times share bytes, that is more than their sum would allow. Of
several orders, by accesses for each byte, by accesses, by size, the one is kept that leaves most accesses to
fast memories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from microfold.errors import GraphError
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap


@dataclass(frozen=True)
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
    bound: int,
) -> PartsPlan:
    """Place storages in memories.

    Args:
        accesses: of one run, estimated.
        rooms: bytes of the memories, the fastest first; the last one takes all that is left.
        alignment: of all storages, bytes.
        bound: bytes that no plan of all of them in one arena can go below.
    """

    def plan(part: Sequence[Storage], wanted: int | None = None) -> ArenaPlan:
        ordered = [block for block in blocks if block in {*part}]
        inside = [o for o in overlaps if o.source in {*part} and o.target in {*part}]
        return plan_coarsely(ordered, inside, alignment, wanted, plan_arena)

    def fill(order: Sequence[Storage]) -> list[list[Storage]]:
        left, parts = list(order), list[list[Storage]]()
        for room in rooms[:-1]:
            taken: list[Storage] = []
            over: list[Storage] = []
            for block in left:
                fits = block.size <= room and plan([*taken, block], room).size <= room
                (taken if fits else over).append(block)
            parts.append(taken)
            left = over
        return [*parts, left]

    def served(parts: Sequence[Sequence[Storage]]) -> list[int]:
        return [sum(accesses.get(block, 0) for block in part) for part in parts]

    orders = (
        sorted(blocks, key=lambda block: -accesses.get(block, 0) / max(block.size, 1)),
        sorted(blocks, key=lambda block: -accesses.get(block, 0)),
        sorted(blocks, key=lambda block: -block.size),
    )
    parts = max(map(fill, orders), key=served)
    plans = [plan(part) for part in parts]
    offsets: dict[Storage, int] = {}
    start = 0
    for found in plans:
        offsets |= {block: start + offset for block, offset in found.offsets.items()}
        start += found.size
    return PartsPlan(ArenaPlan(offsets, start, bound, tuple(overlaps)), tuple(p.size for p in plans))


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
