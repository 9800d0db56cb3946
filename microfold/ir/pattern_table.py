"""What an external code generator can compute, as patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from microfold.ir.match import Match
from microfold.ir.pattern import DataflowPattern
from microfold.support.frozen import frozen


def always(_: Match) -> str | None:
    """The check of a pattern that needs none."""
    return None


@frozen
class PatternEntry:
    """A row of a pattern table.

    Attributes:
        name: tells the matches of this pattern from those of others; unique in its table.
        pattern: what can be computed; its last node gives the result.
        check: None, or the reason why a match cannot be computed after all.
    """

    name: str
    pattern: DataflowPattern
    check: Callable[[Match], str | None] = always


class PatternTable(Protocol):
    """An external code generator as the passes see it."""

    @property
    def name(self) -> str:
        """What the user calls it, e.g. ``cmsis-nn``."""
        ...

    @property
    def patterns(self) -> Sequence[PatternEntry]:
        """What it can compute; where several fit, the first counts."""
        ...

    @property
    def merges(self) -> bool:
        """It takes regions of several matches; else every match is a region."""
        ...
