"""Plans with a coarser alignment than `ALIGNMENT`, for example a cache line for DMA.

Planners count in units of `ALIGNMENT` bytes. The same arithmetic is valid for a coarser unit: sizes and
distances are rounded up. Storages that are alive together then do not share a unit either, except for an
output that overlaps its dying input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from microfold.ir.views import ALIGNMENT
from microfold.plan.arena import ArenaPlan
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap

Plan = Callable[[Sequence[Storage], Sequence[Overlap], int | None], ArenaPlan]


def plan_coarsely(
    blocks: Sequence[Storage],
    overlaps: Sequence[Overlap],
    alignment: int,
    wanted: int | None,
    plan: Plan,
) -> ArenaPlan:
    """Place all storages at multiples of the alignment. The bound applies to plans with this alignment.

    Args:
        alignment: bytes, a multiple of `ALIGNMENT`.
        wanted: see `plan_arena`.
        plan: planner for multiples of `ALIGNMENT`. It receives storages that are measured in the coarser
            unit.
    """
    factor = alignment // ALIGNMENT
    if factor == 1:
        return plan(blocks, overlaps, wanted)
    stand_ins = {block: replace(block, size=_units(block.size, alignment) * ALIGNMENT) for block in blocks}
    allowed = [
        replace(
            overlap,
            source=stand_ins[overlap.source],
            target=stand_ins[overlap.target],
            distance=_units(overlap.distance, alignment) * ALIGNMENT,
        )
        for overlap in overlaps
        if overlap.source in stand_ins
        and overlap.target in stand_ins
        and not (overlap.exact and overlap.distance % alignment)
    ]
    found = plan([*stand_ins.values()], allowed, wanted // factor if wanted is not None else None)
    offsets = {block: found.offsets[stand_in] * factor for block, stand_in in stand_ins.items()}
    return ArenaPlan(offsets, found.size * factor, found.bound * factor, tuple(overlaps))


def _units(size: int, alignment: int) -> int:
    return -(-size // alignment)
