"""The window of a streamed value: its rows as they come and go, and which bytes hold something when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from microfold.plan.stream.blocks import span


class Held(NamedTuple):
    """The bytes of a window that hold something.

    Attributes:
        moments: in which any do, in order.
        bytes: [2, moments]: the first one that does, and the one behind the last.
    """

    moments: NDArray[np.intp]
    bytes: NDArray[np.int64]


@dataclass
class Window:
    """The rows of a value as they come and go.

    Attributes:
        start: the row at the beginning of the window.
        low: the first row that is written.
        top: the first row that is not there yet.
        whole: nothing leaves it.
        capacity: rows that there are at most.
        changes: from which moments on which bytes hold something, from the first to before the last; None:
            none do.
    """

    pitch: int
    start: int
    low: int
    top: int
    whole: bool
    capacity: int = 0
    changes: list[tuple[int, tuple[int, int] | None]] = field(
        default_factory=list[tuple[int, tuple[int, int] | None]]
    )

    def offset(self, row: int) -> int:
        """Where a row lies, bytes from the start of the window."""
        return (row - self.start) * self.pitch

    def hold(self, moment: int, held: tuple[int, int] | None) -> None:
        """These bytes hold something from a moment on, which comes behind all earlier ones."""
        if held != (self.changes[-1][1] if self.changes else None):
            self.changes.append((moment, held))

    @property
    def first(self) -> int:
        """The first moment in which it holds something; there is one."""
        return self.changes[0][0]

    def behind(self, end: int) -> int:
        """The moment behind the last one before `end` in which it holds something."""
        moment, held = self.changes[-1] if self.changes else (0, None)
        return moment if held is None else end

    def keep(self, first: int, behind: int) -> None:
        """It is in use from a moment to before another one: bytes hold what they last held, at first all."""
        kept = [(moment, held) for moment, held in self.changes if held is not None and moment < behind]
        if not kept or kept[0][0] > first:
            kept.insert(0, (first, (0, self.capacity * self.pitch)))
        self.changes = [*kept, (behind, None)]

    def times(self, end: int) -> int:
        """The moments before `end` in which it holds something, as bits."""
        return sum(span(first, behind - 1) for first, behind, _ in self._spans(end))

    def held(self, end: int) -> Held:
        """What holds something before `end`."""
        spans = self._spans(end)
        lengths = [behind - first for first, behind, _ in spans]
        moments = np.concatenate([np.arange(first, behind) for first, behind, _ in spans])
        found = np.array([held for _, _, held in spans], np.int64)
        return Held(moments, np.repeat(found, lengths, axis=0).T)

    def _spans(self, end: int) -> list[tuple[int, int, tuple[int, int]]]:
        """First moments, those behind the last, and bytes."""
        behind = [moment for moment, _ in self.changes[1:]] + [end]
        return [
            (first, last, held)
            for (first, held), last in zip(self.changes, behind, strict=True)
            if held is not None and first < last
        ]
