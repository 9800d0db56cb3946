"""Carried rows: those that stay lie at home, and come to a stage when calls read them with new ones.

On the stage the new row is written behind those that stay, and calls read all of them as one piece, as in a
window. When they are read, what is needed further goes home, and the stage is free for other values. New
rows that others follow before a call reads them are written behind those at home.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from microfold.ops.rows import Rows
from microfold.plan.stream.keepers import Keeper
from microfold.plan.stream.operations import Slide, Spot


@dataclass
class Carried(Keeper):
    """The rows of a value as they come and go. All lie at home, or all on the stage: the newest rows' place.

    Attributes:
        home: rows that lie at home, or did: from the one at its beginning to before the last.
        empty: nothing of that is needed.
    """

    home: Rows = (0, 0)
    empty: bool = True

    def _room(self, first: int, last: int, needed: int, read_next: bool) -> tuple[list[Slide], Spot]:
        if self.is_apart:
            raise AssertionError(f"rows of {self.value!r} come while others are on its stage")
        start = first if self.empty else max(self.home[0], min(needed, first))
        stay = (first - start) * self.pitch
        begin = Spot(self.value, 0, newest=read_next)
        moves: list[Slide] = []
        if stay and (read_next or start > self.home[0]):
            moves.append(Slide(self._at_home(start), begin, stay))
        if read_next:
            self.carries = stay > 0
            self.newest, self.empty = (start, last), True
            self.width = max(self.width, last - start)
        else:
            self._come_home(start, last)
        return moves, Spot(self.value, stay, newest=read_next)

    def padding(self, first: int, last: int) -> Iterator[Rows]:
        """All of it at once."""
        return iter([(first, last)])

    def keep(self, needed: int) -> list[Slide]:
        """What is needed of the rows on the stage goes home."""
        first, last = self.newest
        start = max(first, min(needed, last))
        self.newest = last, last
        if start == last:
            return []
        source = Spot(self.value, (start - first) * self.pitch, newest=True)
        self._come_home(start, last)
        self.carries = True
        return [Slide(source, Spot(self.value, 0), (last - start) * self.pitch)]

    def _come_home(self, first: int, last: int) -> None:
        """These are the rows at home."""
        self.home, self.empty = (first, last), False
        self.most = max(self.most, last - first)

    def forget(self, needed: int) -> None:
        self.empty |= needed >= self.home[1]
        if needed >= self.newest[1]:
            self.newest = self.newest[1], self.newest[1]

    def spots(self, first: int, last: int) -> Spot:
        if self.newest[0] <= first < last <= self.newest[1]:
            return Spot(self.value, (first - self.newest[0]) * self.pitch, newest=True)
        if self.empty or not self.home[0] <= first < last <= self.home[1]:
            raise AssertionError(f"rows {first} to {last} of {self.value!r} are not there")
        return self._at_home(first)

    def _at_home(self, row: int) -> Spot:
        return Spot(self.value, (row - self.home[0]) * self.pitch)

    @property
    def keeps(self) -> bool:
        return not self.empty
