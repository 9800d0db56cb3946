"""Standard output for people: a terminal, a pipe or a file."""

from __future__ import annotations

import os

from rich.console import Console, ConsoleDimensions

from microfold.reporting.tables import Table

# Width of pipes and files, in characters: no line is longer, so that lines are never broken.
_UNLIMITED = 1 << 20


class Output(Console):
    """Standard output with the width of COLUMNS, or else of the terminal; otherwise lines are not broken."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)
        self._width = None  # rich stores COLUMNS at construction; `size` reads it each time

    @property
    def size(self) -> ConsoleDimensions:  # type: ignore[reportIncompatibleMethodOverride]  # nothing sets it
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and 0 < int(columns) <= _UNLIMITED:
            return ConsoleDimensions(int(columns), 25)
        return super().size if self.is_terminal else ConsoleDimensions(_UNLIMITED, 25)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError; rich would exit with 1, as for a failed check."""
        raise BrokenPipeError

    def show(self, table: Table, *, header: bool = True) -> None:
        """Print a table, and the names of the columns that do not fit."""
        layout = table.lay_out(None if self.width == _UNLIMITED else self.width)
        if table.title:
            self.print(table.title, style="bold")
        # Lines of numbers may be wider than a narrow terminal, which then breaks them.
        for line in layout.header if header else ():
            self.print(line, style="bold", soft_wrap=True)
        for line in layout.body:
            self.print(line, soft_wrap=True)
        if layout.left_out:
            self.print(f"columns that do not fit: {', '.join(layout.left_out)}; --json prints them")


console = Output()
