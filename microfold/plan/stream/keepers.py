"""Ways to keep rows that stay, other than in windows: the newest rows lie apart, where other values may lie
between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from microfold.ir.node import Value
from microfold.ops.rows import Rows
from microfold.plan.stream.operations import Slide, Spot, Table


@dataclass
class Keeper(ABC):
    """The rows of a value as they come and go.

    Attributes:
        top: the first row that is not there yet.
        newest: rows that lie apart: from the first to before the last.
        width: rows that lie apart at most.
        most: rows that were kept at most, apart from these.
        times: moments at which the place of kept rows is in use, as bits.
        newest_times: the same of the rows that lie apart.
        read: a call has read the last one of these.
        carries: rows have just moved between the two places, and need both for a moment of its own.
    """

    value: Value
    pitch: int
    top: int
    newest: Rows = (0, 0)
    width: int = 0
    most: int = 0
    times: int = 0
    newest_times: int = 0
    read: bool = False
    carries: bool = False

    def write(self, first: int, last: int, needed: int, read_next: bool) -> tuple[list[Slide], Spot]:
        """Room for new rows, and where they come to.

        Args:
            needed: the first row that is still needed.
            read_next: rows are read before others are written.
        """
        if first != self.top:
            raise AssertionError(f"row {first} of {self.value!r} comes behind row {self.top}")
        moves, spot = self._room(first, last, needed, read_next)
        self.top, self.read = last, False
        return moves, spot

    @abstractmethod
    def _room(self, first: int, last: int, needed: int, read_next: bool) -> tuple[list[Slide], Spot]:
        """See `write`."""

    @abstractmethod
    def padding(self, first: int, last: int) -> Iterator[Rows]:
        """Rows of padding as they are written."""

    @abstractmethod
    def keep(self, needed: int) -> list[Slide]:
        """What is needed of the newest rows moves to where rows are kept."""

    @abstractmethod
    def forget(self, needed: int) -> None:
        """Rows that nothing needs any more leave."""

    @abstractmethod
    def spots(self, first: int, last: int) -> Spot | Table:
        """Where rows lie that are read at once."""

    @property
    @abstractmethod
    def keeps(self) -> bool:
        """Whether rows are kept now, apart from the newest ones."""

    @property
    def is_apart(self) -> bool:
        """Whether rows lie apart now."""
        return self.newest[0] < self.newest[1]

    @property
    def size(self) -> int:
        """Bytes of the kept rows."""
        return max(self.most, 1) * self.pitch

    def mark(self, time: int) -> None:
        """What is there now is in use at this moment."""
        if self.keeps or self.carries:
            self.times |= 1 << time
        if self.is_apart or self.carries:
            self.newest_times |= 1 << time
        self.carries = False
