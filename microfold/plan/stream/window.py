"""Window: contiguous line buffer of a streamed value, and the bytes of it that are in use over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from microfold.plan.stream.blocks import span


class UsedBytes(NamedTuple):
    """Bytes of a window that are in use.

    Attributes:
        moments: moments at which any bytes are in use, in order.
        bytes: [2, moments]: first and end of the used range.
    """

    moments: NDArray[np.intp]
    bytes: NDArray[np.int64]


@dataclass
class RowWindow:
    """Line buffer of a value during the simulation of a region.

    Attributes:
        start: row at the beginning of the window.
        low: first row that is written.
        top: first row that has not been written yet.
        whole: whether rows are never released (resident value).
        capacity: maximum number of rows.
        changes: moments at which the range [first, last) of used bytes changes; None: no bytes are used.
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
        """Return the offset of a row from the start of the window, in bytes."""
        return (row - self.start) * self.pitch

    def hold(self, moment: int, held: tuple[int, int] | None) -> None:
        """Record the used bytes from a moment on, which must come after all earlier ones."""
        if held != (self.changes[-1][1] if self.changes else None):
            self.changes.append((moment, held))

    @property
    def first(self) -> int:
        """First moment at which it is in use; it must have one."""
        return self.changes[0][0]

    def behind(self, end: int) -> int:
        """Return the moment after the last use, at most `end`."""
        moment, held = self.changes[-1] if self.changes else (0, None)
        return moment if held is None else end

    def keep(self, first: int, behind: int) -> None:
        """Extend the use to [first, behind). Gaps keep the bytes used before them, at the start all bytes."""
        kept = [(moment, held) for moment, held in self.changes if held is not None and moment < behind]
        if not kept or kept[0][0] > first:
            kept.insert(0, (first, (0, self.capacity * self.pitch)))
        self.changes = [*kept, (behind, None)]

    def times(self, end: int) -> int:
        """Return the moments before `end` at which it is in use, as a bit mask."""
        return sum(span(first, behind - 1) for first, behind, _ in self._spans(end))

    def held(self, end: int) -> UsedBytes:
        """Return the bytes in use before `end`."""
        spans = self._spans(end)
        lengths = [behind - first for first, behind, _ in spans]
        moments = np.concatenate([np.arange(first, behind) for first, behind, _ in spans])
        found = np.array([held for _, _, held in spans], np.int64)
        return UsedBytes(moments, np.repeat(found, lengths, axis=0).T)

    def _spans(self, end: int) -> list[tuple[int, int, tuple[int, int]]]:
        """Return the periods of use as (first moment, end, used bytes)."""
        behind = [moment for moment, _ in self.changes[1:]] + [end]
        return [
            (first, last, held)
            for (first, held), last in zip(self.changes, behind, strict=True)
            if held is not None and first < last
        ]
