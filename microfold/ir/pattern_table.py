"""Pattern tables: the regions of a graph that somebody else's code can compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from microfold.errors import InputError
from microfold.ir.match import Match
from microfold.ir.pattern import DataflowPattern
from microfold.support.frozen import frozen

# None or True: the match can be computed. False or a reason: it cannot.
Check = Callable[[Match], "str | bool | None"]


def always(_: Match) -> str | None:
    """Accept every match."""
    return None


@frozen
class PatternEntry:
    """A row of a pattern table.

    Attributes:
        name: tells the matches of this pattern from those of others; unique in its table.
        pattern: what can be computed; its last node gives the result.
        check: says whether a match can be computed after all.
        several_results: results of nodes before the last one may be read outside the match; they are results
            of it, too. Else such a match is rejected.
    """

    name: str
    pattern: DataflowPattern
    check: Check = always
    several_results: bool = False

    def rejection(self, found: Match) -> str | None:
        """Return why a match cannot be computed; None if it can."""
        answer = self.check(found)
        if isinstance(answer, str):
            return answer
        return None if answer in (None, True) else "its check rejects it"


def pattern_entries(table: Sequence[object]) -> list[PatternEntry]:
    """Return the rows of a table; tuples of a name, a pattern and, optionally, a check are rows, too.

    Raises:
        InputError: an element is neither, or two rows have one name.
    """
    entries: list[PatternEntry] = []
    for index, row in enumerate(table):
        if isinstance(row, tuple):
            parts = cast("tuple[Any, ...]", row)
            is_row = len(parts) in (2, 3) and all(map(isinstance, parts, (str, DataflowPattern)))
            if is_row and all(map(callable, parts[2:])):
                row = PatternEntry(*parts)
        if not isinstance(row, PatternEntry):
            raise InputError(
                f"a row of a pattern table is a PatternEntry, (name, pattern) or (name, pattern, check); "
                f"row {index} is {row!r}"
            )
        if any(row.name == other.name for other in entries):
            raise InputError(f"rows of a pattern table must have different names; two are {row.name!r}")
        entries.append(row)
    return entries


class PatternTable(Protocol):
    """An external code generator as the passes see it."""

    @property
    def name(self) -> str:
        """What the user calls it, e.g. ``cmsis-nn``."""
        ...

    @property
    def patterns(self) -> Sequence[PatternEntry]:
        """The patterns that it can compute; earlier ones have priority over the whole graph."""
        ...

    @property
    def merges(self) -> bool:
        """It takes regions of several matches; else every match is a region."""
        ...
