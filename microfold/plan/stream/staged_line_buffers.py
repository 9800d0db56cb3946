"""Staged line buffers: older rows stay in a home buffer, and are copied to a stage when calls read them.

On the stage, the new row is written after the copied rows, so that calls read all rows as one contiguous
block, as in a window. Then the rows that are still needed are copied back, and the stage is free for other
values. A new row that is followed by other rows before a call reads it is written directly after the rows in
the home buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from microfold.ops.rows import Rows
from microfold.plan.stream.operations import MoveRows, WindowAddress
from microfold.plan.stream.row_buffers import RowBuffer


@dataclass
class StagedLineBuffer(RowBuffer):
    """Staged line buffer of a value. All rows are in the home buffer, or all on the stage (`newest`).

    Attributes:
        home: range of rows in the home buffer, possibly outdated.
        empty: whether none of these rows is needed.
    """

    home: Rows = (0, 0)
    empty: bool = True

    def _room(
        self, first: int, last: int, needed: int, read_next: bool
    ) -> tuple[list[MoveRows], WindowAddress]:
        if self.is_apart:
            raise AssertionError(f"rows of {self.value!r} arrive while others are on its stage")
        start = first if self.empty else max(self.home[0], min(needed, first))
        stay = (first - start) * self.pitch
        begin = WindowAddress(self.value, 0, newest=read_next)
        moves: list[MoveRows] = []
        if stay and (read_next or start > self.home[0]):
            moves.append(MoveRows(self._at_home(start), begin, stay))
        if read_next:
            self.carries = stay > 0
            self.newest, self.empty = (start, last), True
            self.width = max(self.width, last - start)
        else:
            self._come_home(start, last)
        return moves, WindowAddress(self.value, stay, newest=read_next)

    def padding(self, first: int, last: int) -> Iterator[Rows]:
        """Yield all rows of padding at once."""
        return iter([(first, last)])

    def keep(self, needed: int) -> list[MoveRows]:
        """Copy the rows on the stage that are still needed back to the home buffer."""
        first, last = self.newest
        start = max(first, min(needed, last))
        self.newest = last, last
        if start == last:
            return []
        source = WindowAddress(self.value, (start - first) * self.pitch, newest=True)
        self._come_home(start, last)
        self.carries = True
        return [MoveRows(source, WindowAddress(self.value, 0), (last - start) * self.pitch)]

    def _come_home(self, first: int, last: int) -> None:
        """Record the rows that are now in the home buffer."""
        self.home, self.empty = (first, last), False
        self.most = max(self.most, last - first)

    def forget(self, needed: int) -> None:
        self.empty |= needed >= self.home[1]
        if needed >= self.newest[1]:
            self.newest = self.newest[1], self.newest[1]

    def spots(self, first: int, last: int) -> WindowAddress:
        if self.newest[0] <= first < last <= self.newest[1]:
            return WindowAddress(self.value, (first - self.newest[0]) * self.pitch, newest=True)
        if self.empty or not self.home[0] <= first < last <= self.home[1]:
            raise AssertionError(f"rows {first} to {last} of {self.value!r} are not in a buffer")
        return self._at_home(first)

    def _at_home(self, row: int) -> WindowAddress:
        return WindowAddress(self.value, (row - self.home[0]) * self.pitch)

    @property
    def keeps(self) -> bool:
        return not self.empty
