"""Rings: rows that stay lie in slots, one after the other and round again; the newest ones lie apart.

What is computed comes to the newest rows' place, which is used only until a call has read it: other values
may use the same bytes between. What is needed further moves into the next slot, once. Calls that read several
rows are given their addresses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from microfold.ir.node import Value
from microfold.plan.stream.operations import Slide, Spot, Table


@dataclass
class Ring:
    """The rows of a value as they come and go.

    Attributes:
        slots: rows that may stay; None: not known yet, any number.
        newest: rows that lie apart: from the first to before the last.
        width: rows that lie apart at most.
        kept: rows in slots that may still be needed, the oldest first, with their slots' numbers.
        count: rows that were moved into slots so far.
        most: rows that were kept at most.
        times: moments at which slots are in use, as bits.
        newest_times: the same of the rows that lie apart.
        read: a call has read the last one of these.
    """

    value: Value
    pitch: int
    top: int
    slots: int | None = None
    newest: tuple[int, int] = (0, 0)
    width: int = 0
    kept: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    count: int = 0
    most: int = 0
    times: int = 0
    newest_times: int = 0
    read: bool = False

    def write(self, first: int, last: int, needed: int) -> tuple[list[Slide], Spot]:
        """Room for new rows, and where they come to."""
        if first != self.top:
            raise AssertionError(f"row {first} of {self.value!r} comes behind row {self.top}")
        moves = self.keep(needed)
        self.newest, self.top, self.read = (first, last), last, False
        self.width = max(self.width, last - first)
        return moves, Spot(self.value, 0, newest=True)

    def keep(self, needed: int) -> list[Slide]:
        """What is needed of the newest rows moves into slots."""
        while self.kept and self.kept[0][0] < needed:
            self.kept.popleft()
        moves: list[Slide] = []
        first, last = self.newest
        for row in range(max(first, needed), last):
            slot = self.count if self.slots is None else self.count % self.slots
            source = Spot(self.value, (row - first) * self.pitch, newest=True)
            moves.append(Slide(source, Spot(self.value, slot * self.pitch), self.pitch))
            self.kept.append((row, slot))
            self.count += 1
        self.most = max(self.most, len(self.kept))
        self.newest = last, last
        return moves

    def forget(self, needed: int) -> None:
        """Rows that nothing needs any more leave."""
        while self.kept and self.kept[0][0] < needed:
            self.kept.popleft()
        if needed >= self.newest[1]:
            self.newest = self.newest[1], self.newest[1]

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
        """Where rows lie that are read at once."""
        if last - first == 1:
            return self.spot(first)
        return Table(tuple(self.spot(row) for row in range(first, last)))

    def mark(self, time: int) -> None:
        """What is there now is in use at this moment."""
        if self.kept:
            self.times |= 1 << time
        if self.newest[0] < self.newest[1]:
            self.newest_times |= 1 << time
