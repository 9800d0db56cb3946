"""Tables as lines of text, fitted to a width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from rich.cells import cell_len

_GAP = "  "
# Minimum width of a text column, in characters; columns are omitted only after text columns are this narrow.
_NARROW = 12
# Characters after which a long name may be broken.
_BREAKS = " _/;,."


class TableColumn(Struct, frozen=True):
    """Column of a table.

    Attributes:
        number: whether its cells are aligned to the right and never broken.
        rank: order in which columns are omitted if the table is too wide, the highest rank first; 0: never.
    """

    name: str
    number: bool = False
    rank: int = 0


def number(name: str, rank: int = 0) -> TableColumn:
    """Return a column of numbers."""
    return TableColumn(name, number=True, rank=rank)


class Layout(Struct, frozen=True):
    """A table as lines of text.

    Attributes:
        header, body: lines.
        left_out: names of the omitted columns.
    """

    header: tuple[str, ...]
    body: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass
class Table:
    """A table with its rows.

    Attributes:
        title: line above the table; may be empty.
    """

    title: str
    columns: Sequence[TableColumn]
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def add(self, *cells: str) -> None:
        """Add a row, a cell for each column."""
        if len(cells) != len(self.columns):
            raise ValueError(f"a row must have {len(self.columns)} cells; it has {len(cells)}")
        self.rows.append(cells)

    def lay_out(self, width: int | None) -> Layout:
        """Return the lines of the table.

        Args:
            width: width of the terminal, in characters; None: unlimited, one line for each row. Numbers may
                exceed it.
        """
        shown = self._shown(width)
        widths = self._widths(shown, width)
        names = [tuple(self.columns[i].name for i in shown)]
        rows = [tuple(row[i] for i in shown) for row in self.rows]
        numbers = [self.columns[i].number for i in shown]
        return Layout(
            tuple(_lines(names, widths, numbers)),
            tuple(_lines(rows, widths, numbers)),
            tuple(column.name for i, column in enumerate(self.columns) if i not in shown),
        )

    def _shown(self, width: int | None) -> list[int]:
        """Return the indices of the columns that fit."""
        shown = [*range(len(self.columns))]
        while width is not None and _total(self._least(i) for i in shown) > width:
            last = max(shown, key=lambda i: self.columns[i].rank)
            if not self.columns[last].rank:
                break
            shown.remove(last)
        return shown

    def _widths(self, shown: Sequence[int], width: int | None) -> list[int]:
        """Return the width of each column: its natural width, reduced if the table is too wide."""
        widths = [self._natural(i) for i in shown]
        least = [self._least(i) for i in shown]
        while width is not None and _total(widths) > width:
            position = max(range(len(shown)), key=lambda p: widths[p] - least[p])
            if widths[position] <= least[position]:
                break
            widths[position] -= 1
        return widths

    def _natural(self, index: int) -> int:
        cells = (row[index] for row in self.rows)
        if self.columns[index].number:
            return self._least(index)
        return max(map(cell_len, (self.columns[index].name, *cells)))

    def _least(self, index: int) -> int:
        column = self.columns[index]
        if not column.number:
            return min(self._natural(index), _NARROW)
        return max(map(cell_len, (*column.name.split(), "", *(row[index] for row in self.rows))))


def _total(widths: Iterable[int]) -> int:
    found = [*widths]
    return sum(found) + len(_GAP) * (len(found) - 1)


def _lines(rows: Sequence[Sequence[str]], widths: Sequence[int], numbers: Sequence[bool]) -> Iterator[str]:
    """Yield the lines of rows, with cells broken to fit their columns."""
    for row in rows:
        parts = [[*_broken(cell, width)] for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, parts), default=0)):
            cells = (part[line] if line < len(part) else "" for part in parts)
            yield _GAP.join(map(_padded, cells, widths, numbers)).rstrip()


def _padded(cell: str, width: int, number: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if number else cell + space


def _broken(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a cell."""
    while cell_len(text) > width:
        room = next(n for n in range(len(text), 0, -1) if n == 1 or cell_len(text[:n]) <= width)
        # A blank at a line break is not shown, so it may be just beyond the width.
        ends = [n for n in range(1, room + 1) if text[n - 1] in _BREAKS or text[n : n + 1] == " "]
        end = ends[-1] if ends else room
        yield text[:end].rstrip()
        text = text[end:].lstrip()
    yield text
