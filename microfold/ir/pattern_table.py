"""Pattern tables: the patterns of regions that an external code generator can compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from msgspec import Struct

from microfold.errors import InputError
from microfold.ir.match import Match
from microfold.ir.pattern import DataflowPattern

# Result: None or True if the match can be computed; False or a reason if it cannot.
Check = Callable[[Match], "str | bool | None"]


def always(_: Match) -> str | None:
    """Accept every match."""
    return None


class PatternEntry(Struct, frozen=True):
    """Row of a pattern table.

    Attributes:
        name: name of the pattern; unique in its table.
        pattern: pattern that can be computed; its last node produces the result.
        check: decides whether a match can be computed.
        several_results: whether results of nodes before the last one may be read outside the match, so that
            they become results of it. Otherwise, such a match is rejected.
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
    """Return the rows of a table; a row may also be a tuple of a name, a pattern and, optionally, a check.

    Raises:
        InputError: an element is not a row, or two rows have the same name.
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
                "a row of a pattern table must be a PatternEntry, (name, pattern) or (name, pattern, check); "
                f"row {index} is {row!r}"
            )
        if any(row.name == other.name for other in entries):
            raise InputError(f"rows of a pattern table must have different names; two are {row.name!r}")
        entries.append(row)
    return entries


class PatternTable(Protocol):
    """Interface of an external code generator for the passes."""

    @property
    def name(self) -> str:
        """Name of the generator for users, e.g. ``cmsis-nn``."""
        ...

    @property
    def patterns(self) -> Sequence[PatternEntry]:
        """Patterns that the generator can compute; earlier ones have priority over the whole graph."""
        ...

    @property
    def merges(self) -> bool:
        """Whether a region can consist of several matches; otherwise every match is a region."""
        ...
