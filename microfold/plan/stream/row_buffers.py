"""Row buffers other than windows: the newest rows have a separate buffer, which other values can reuse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from microfold.ir.node import Value
from microfold.ops.rows import Rows
from microfold.plan.stream.operations import IndirectionBuffer, MoveRows, WindowAddress


@dataclass
class RowBuffer(ABC):
    """Row buffer of a value.

    Attributes:
        top: first row that has not been written yet.
        newest: range of rows in the separate buffer.
        width: maximum number of rows in the separate buffer.
        most: maximum number of older rows that are kept.
        times: moments at which the buffer of older rows is in use, as a bit mask.
        newest_times: moments at which the separate buffer is in use.
        read: whether a call has read the last row of the separate buffer.
        carries: whether rows have just been copied between the two buffers, which needs a separate moment.
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

    def write(
        self, first: int, last: int, needed: int, read_next: bool
    ) -> tuple[list[MoveRows], WindowAddress]:
        """Make room for new rows.

        Args:
            needed: first row that is still needed.
            read_next: whether rows are read before others are written.

        Returns:
            Copies of older rows that must come first, and the address of the new rows.
        """
        if first != self.top:
            raise AssertionError(f"row {first} of {self.value!r} comes after row {self.top}")
        moves, spot = self._room(first, last, needed, read_next)
        self.top, self.read = last, False
        return moves, spot

    @abstractmethod
    def _room(
        self, first: int, last: int, needed: int, read_next: bool
    ) -> tuple[list[MoveRows], WindowAddress]:
        """Implement `write`."""

    @abstractmethod
    def padding(self, first: int, last: int) -> Iterator[Rows]:
        """Yield ranges of padding rows to write."""

    @abstractmethod
    def keep(self, needed: int) -> list[MoveRows]:
        """Copy newest rows that are still needed to the buffer of older rows."""

    @abstractmethod
    def forget(self, needed: int) -> None:
        """Release rows that are not needed any more."""

    @abstractmethod
    def spots(self, first: int, last: int) -> WindowAddress | IndirectionBuffer:
        """Return the addresses of rows that are read by one call."""

    @property
    @abstractmethod
    def keeps(self) -> bool:
        """Whether older rows are kept now."""

    @property
    def is_apart(self) -> bool:
        """Whether the separate buffer holds rows now."""
        return self.newest[0] < self.newest[1]

    @property
    def size(self) -> int:
        """Size of the buffer of older rows, in bytes."""
        return max(self.most, 1) * self.pitch

    def mark(self, time: int) -> None:
        """Record that the buffers are in use at this moment."""
        if self.keeps or self.carries:
            self.times |= 1 << time
        if self.is_apart or self.carries:
            self.newest_times |= 1 << time
        self.carries = False
