"""Independent check of an arena plan: replays the calls over a map of the arena's bytes."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.errors import GraphError
from microfold.ir.views import ALIGNMENT
from microfold.plan.arena import ArenaPlan
from microfold.plan.liveness import Storage


def check_plan(blocks: Sequence[Storage], plan: ArenaPlan) -> None:
    """Verify that no two live storages share bytes, but for the overlaps that kernels allow.

    Shares no code with the planner: compares all pairs byte range by byte range.

    Raises:
        GraphError: lists every conflict.
    """
    faults: list[str] = []
    allowed = {(o.source, o.target): o for o in plan.overlaps}
    for block in blocks:
        if block not in plan.offsets:
            faults.append(f"{block.label!r} has no place")
        elif plan.offsets[block] % ALIGNMENT or not 0 <= plan.offsets[block] <= plan.size - block.size:
            faults.append(
                f"{block.label!r} lies at {plan.offsets[block]}, outside of {plan.size} or unaligned"
            )
    placed = [block for block in blocks if block in plan.offsets]
    for i, one in enumerate(placed):
        for other in placed[i + 1 :]:
            begin, end = plan.offsets[one], plan.offsets[one] + one.size
            other_begin, other_end = plan.offsets[other], plan.offsets[other] + other.size
            share_time = max(one.first, other.first) <= min(one.last, other.last)
            share_bytes = max(begin, other_begin) < min(end, other_end)
            if not (share_time and share_bytes):
                continue
            # An input may be overwritten only in the one call that reads it last and writes the output.
            for source, target in ((one, other), (other, one)):
                if (source, target) in allowed and source.last == target.first:
                    distance = plan.offsets[source] - plan.offsets[target]
                    leave = allowed[source, target]
                    fits = distance == leave.distance if leave.exact else distance >= leave.distance
                    break
            else:
                fits = False
            if not fits:
                faults.append(
                    f"{one.label!r} [{begin}, {end}) calls {one.first}..{one.last} and {other.label!r} "
                    f"[{other_begin}, {other_end}) calls {other.first}..{other.last} share bytes"
                )
    if faults:
        raise GraphError("the memory plan is wrong:\n" + "\n".join(f"  - {fault}" for fault in faults))
