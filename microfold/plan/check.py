"""Independent checker of an arena plan: replays the calls over a map of the arena's bytes."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Sequence

from microfold.errors import GraphError
from microfold.ir.views import ALIGNMENT
from microfold.plan.arena import ArenaPlan
from microfold.plan.liveness import Storage
from microfold.plan.overlap import Overlap


def check_plan(blocks: Sequence[Storage], plan: ArenaPlan, alignment: int = ALIGNMENT) -> None:
    """Verify that no two live storages share bytes, except for the overlaps that kernels allow.

    The checker shares no code with the planner.

    Args:
        alignment: required alignment of all storages, in bytes. Storages that are alive together must not
            share a unit of this size.

    Raises:
        GraphError: lists every storage that is misplaced or shares bytes with others.
    """
    faults: list[str] = []
    for block in blocks:
        if block not in plan.offsets:
            faults.append(f"{block.label!r} has no offset")
        elif plan.offsets[block] % alignment or not 0 <= plan.offsets[block] <= plan.size - block.size:
            faults.append(
                f"{block.label!r} is at {plan.offsets[block]}, outside of {plan.size} bytes or unaligned"
            )
    faults += _Replay(plan, alignment).conflicts([block for block in blocks if block in plan.offsets])
    if faults:
        raise GraphError("the memory plan is wrong:\n" + "\n".join(f"  - {fault}" for fault in faults))


class _Replay:
    """State of the arena from call to call."""

    def __init__(self, plan: ArenaPlan, alignment: int):
        self.plan = plan
        self.alignment = alignment
        self.allowed = {(o.source, o.target): o for o in plan.overlaps}
        self.targets = {o.target for o in plan.overlaps}
        # Offsets of live storages in ascending order, and the storages. Conflicting storages are not added.
        self.starts: list[int] = []
        self.alive: list[Storage] = []
        self.dying: list[tuple[int, int, Storage]] = []
        self._count = 0

    def conflicts(self, blocks: Sequence[Storage]) -> list[str]:
        """Check each storage, when it becomes alive, against the other live storages."""
        faults: dict[str, None] = {}
        for now, group in itertools.groupby(sorted(blocks, key=lambda b: b.first), lambda b: b.first):
            while self.dying and self.dying[0][0] < now:
                self._remove(heapq.heappop(self.dying)[2])
            # An input may be overwritten only in the call that reads it last and writes the output. For all
            # other storages of that call, the input is still alive.
            plain: list[Storage] = []
            targets: list[Storage] = []
            for block in group:
                (targets if block in self.targets else plain).append(block)
            for block in plain:
                faults |= dict.fromkeys(self._add(block))
            for block in targets:
                faults |= dict.fromkeys(self._faults(block, self._sharing(block)))
            for source in [source for block in targets for source in self._sharing(block)]:
                self._remove(source)
            for block in targets:
                faults |= dict.fromkeys(self._add(block))
        return list(faults)

    def _add(self, block: Storage) -> list[str]:
        """Add a storage to the map if its bytes are free, and return the conflicts."""
        faults = self._faults(block, self._sharing(block))
        if not faults:
            place = bisect.bisect_left(self.starts, self.plan.offsets[block])
            self.starts.insert(place, self.plan.offsets[block])
            self.alive.insert(place, block)
            self._count += 1
            heapq.heappush(self.dying, (block.last, self._count, block))
        return faults

    def _remove(self, block: Storage) -> None:
        place = bisect.bisect_left(self.starts, self.plan.offsets[block])
        if place < len(self.alive) and self.alive[place] is block:
            del self.starts[place], self.alive[place]

    def _sharing(self, block: Storage) -> list[Storage]:
        """Return the live storages that share bytes with this one."""
        begin, end = self._extent(block)
        first = place = bisect.bisect_right(self.starts, begin)
        while first > 0 and self._extent(self.alive[first - 1])[1] > begin:
            first -= 1
        while place < len(self.alive) and self.starts[place] < end:
            place += 1
        return self.alive[first:place]

    def _faults(self, block: Storage, others: Sequence[Storage]) -> list[str]:
        begin, end = self._extent(block)
        return [
            f"{other.label!r} [{self._extent(other)[0]}, {self._extent(other)[1]}) calls "
            f"{other.first}..{other.last} and {block.label!r} [{begin}, {end}) calls "
            f"{block.first}..{block.last} share bytes"
            for other in others
            if not self._may_share(other, block)
        ]

    def _may_share(self, source: Storage, target: Storage) -> bool:
        permission: Overlap | None = self.allowed.get((source, target))
        if permission is None or source.last != target.first:
            return False
        distance = self.plan.offsets[source] - self.plan.offsets[target]
        return distance == permission.distance if permission.exact else distance >= permission.distance

    def _extent(self, block: Storage) -> tuple[int, int]:
        begin = self.plan.offsets[block]
        return begin, begin - -block.size // self.alignment * self.alignment
