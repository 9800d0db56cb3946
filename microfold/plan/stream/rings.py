"""Rings: rows that stay lie in slots, one after the other and round again; the newest ones lie apart.

What is computed comes to the newest rows' place, which is used only until a call has read it: other values
may use the same bytes between. What is needed further moves into the next slot, once. Calls that read several
rows are given their addresses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from microfold.ir.node import Value
from microfold.ops.rows import Rows
from microfold.plan.stream.keepers import Keeper
from microfold.plan.stream.operations import Operation, RowsCall, Slide, Spot, Table


@dataclass
class Ring(Keeper):
    """The rows of a value as they come and go.

    Attributes:
        kept: rows in slots that may still be needed, the oldest first, with their slots' numbers, as if there
            were a slot for each row; see `in_slots`.
        count: rows that were moved into slots so far.
    """

    kept: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    count: int = 0

    def _room(self, first: int, last: int, needed: int, read_next: bool) -> tuple[list[Slide], Spot]:
        del read_next
        moves = self.keep(needed)
        self.newest = first, last
        self.width = max(self.width, last - first)
        return moves, Spot(self.value, 0, newest=True)

    def padding(self, first: int, last: int) -> Iterator[Rows]:
        """Row by row: there is room for as many as a call computes."""
        return ((row, row + 1) for row in range(first, last))

    def keep(self, needed: int) -> list[Slide]:
        """What is needed of the newest rows moves into slots."""
        self._forget_kept(needed)
        moves: list[Slide] = []
        first, last = self.newest
        for row in range(max(first, needed), last):
            source = Spot(self.value, (row - first) * self.pitch, newest=True)
            moves.append(Slide(source, Spot(self.value, self.count * self.pitch), self.pitch))
            self.kept.append((row, self.count))
            self.count += 1
        self.most = max(self.most, len(self.kept))
        self.newest = last, last
        return moves

    def forget(self, needed: int) -> None:
        self._forget_kept(needed)
        if needed >= self.newest[1]:
            self.newest = self.newest[1], self.newest[1]

    def _forget_kept(self, needed: int) -> None:
        while self.kept and self.kept[0][0] < needed:
            self.kept.popleft()

    def spot(self, row: int) -> Spot:
        """Where a row lies."""
        first, last = self.newest
        if first <= row < last:
            return Spot(self.value, (row - first) * self.pitch, newest=True)
        slots = dict(self.kept)
        if row not in slots:
            raise AssertionError(f"row {row} of {self.value!r} is not there")
        return Spot(self.value, slots[row] * self.pitch)

    def spots(self, first: int, last: int) -> Spot | Table:
        if last - first == 1:
            return self.spot(first)
        return Table(tuple(self.spot(row) for row in range(first, last)))

    @property
    def keeps(self) -> bool:
        return bool(self.kept)


def in_slots(operation: Operation, rings: Mapping[Value, int]) -> Operation:
    """An operation with the slots that there are, which are used again and again.

    Args:
        rings: bytes of the slots of each ring.
    """

    def spot(given: Spot) -> Spot:
        size = rings.get(given.value)
        if size is None or given.newest or given.offset < size:
            return given
        return Spot(given.value, given.offset % size)

    if isinstance(operation, Slide):
        return replace(operation, target=spot(operation.target))
    if isinstance(operation, RowsCall) and any(each.value in rings for each in operation.inputs):
        inputs = [
            spot(each) if isinstance(each, Spot) else Table(tuple(map(spot, each.spots)))
            for each in operation.inputs
        ]
        return replace(operation, inputs=(*inputs,))
    return operation
