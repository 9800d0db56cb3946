"""Where text for people goes: a terminal, or what takes its place."""

from __future__ import annotations

import os

from rich.console import Console, ConsoleDimensions

from microfold.report.tables import Table

# Nothing is this long: whoever reads a pipe or a file gets whole lines.
_UNLIMITED = 1 << 20


class Output(Console):
    """The standard output: as wide as COLUMNS says, or the terminal; without either, lines are whole."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)
        self._width = None  # what COLUMNS was when this was made

    @property
    def size(self) -> ConsoleDimensions:  # type: ignore[reportIncompatibleMethodOverride]  # nothing sets it
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and 0 < int(columns) <= _UNLIMITED:
            return ConsoleDimensions(int(columns), 25)
        return super().size if self.is_terminal else ConsoleDimensions(_UNLIMITED, 25)

    def on_broken_pipe(self) -> None:
        """Where nobody reads on, rich would exit as for a failed check; the command line knows better."""
        raise BrokenPipeError

    def show(self, table: Table, *, header: bool = True) -> None:
        """Print a table, and which columns there is no room for."""
        layout = table.lay_out(None if self.width == _UNLIMITED else self.width)
        if table.title:
            self.print(table.title, style="bold")
        # Lines of numbers may be wider than a narrow terminal; it breaks them itself.
        for line in layout.header if header else ():
            self.print(line, style="bold", soft_wrap=True)
        for line in layout.body:
            self.print(line, soft_wrap=True)
        if layout.left_out:
            self.print(f"not shown for lack of room: {', '.join(layout.left_out)}; --json has them")


console = Output()
