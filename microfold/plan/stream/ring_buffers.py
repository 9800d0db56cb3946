"""Ring buffers: older rows are in the slots of a ring, and the newest rows in a separate buffer.

A call writes its rows into the buffer for newest rows. It is used only until a call has read them; other
values can use the same bytes in between. Rows that are still needed are then copied into the next slot, once.
Calls that read several rows get an indirection buffer with their addresses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from microfold.ir.node import Value
from microfold.ops.rows import Rows
from microfold.plan.stream.operations import IndirectionBuffer, MoveRows, Operation, RowsCall, WindowAddress
from microfold.plan.stream.row_buffers import RowBuffer


@dataclass
class RingBuffer(RowBuffer):
    """Ring buffer of a value.

    Attributes:
        kept: rows in slots that may still be needed, the oldest first, with their slot numbers. Numbers are
            counted as if each row had its own slot; see `in_slots`.
        count: number of rows that have been copied into slots so far.
    """

    kept: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    count: int = 0

    def _room(
        self, first: int, last: int, needed: int, read_next: bool
    ) -> tuple[list[MoveRows], WindowAddress]:
        del read_next
        moves = self.keep(needed)
        self.newest = first, last
        self.width = max(self.width, last - first)
        return moves, WindowAddress(self.value, 0, newest=True)

    def padding(self, first: int, last: int) -> Iterator[Rows]:
        """Yield single rows: the buffer only has room for the rows that one call computes."""
        return ((row, row + 1) for row in range(first, last))

    def keep(self, needed: int) -> list[MoveRows]:
        """Copy newest rows that are still needed into slots."""
        self._forget_kept(needed)
        moves: list[MoveRows] = []
        first, last = self.newest
        for row in range(max(first, needed), last):
            source = WindowAddress(self.value, (row - first) * self.pitch, newest=True)
            moves.append(MoveRows(source, WindowAddress(self.value, self.count * self.pitch), self.pitch))
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

    def spot(self, row: int) -> WindowAddress:
        """Return the address of a row."""
        first, last = self.newest
        if first <= row < last:
            return WindowAddress(self.value, (row - first) * self.pitch, newest=True)
        slots = dict(self.kept)
        if row not in slots:
            raise AssertionError(f"row {row} of {self.value!r} is in no buffer")
        return WindowAddress(self.value, slots[row] * self.pitch)

    def spots(self, first: int, last: int) -> WindowAddress | IndirectionBuffer:
        if last - first == 1:
            return self.spot(first)
        return IndirectionBuffer(tuple(self.spot(row) for row in range(first, last)))

    @property
    def keeps(self) -> bool:
        return bool(self.kept)


def in_slots(operation: Operation, rings: Mapping[Value, int]) -> Operation:
    """Reduce the slot numbers of an operation modulo the number of slots.

    Args:
        rings: size of the slots of each ring, in bytes.
    """

    def spot(given: WindowAddress) -> WindowAddress:
        size = rings.get(given.value)
        if size is None or given.newest or given.offset < size:
            return given
        return WindowAddress(given.value, given.offset % size)

    if isinstance(operation, MoveRows):
        return replace(operation, target=spot(operation.target))
    if isinstance(operation, RowsCall) and any(each.value in rings for each in operation.inputs):
        inputs = [
            spot(each) if isinstance(each, WindowAddress) else IndirectionBuffer(tuple(map(spot, each.spots)))
            for each in operation.inputs
        ]
        return replace(operation, inputs=(*inputs,))
    return operation
