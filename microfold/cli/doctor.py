"""microfold doctor"""

from __future__ import annotations

import sys

import typer

from microfold import __version__
from microfold.cli.common import print_json, working
from microfold.cli.options import Json


def doctor(as_json: Json = False) -> None:
    """Show which compilers, simulators and extras this machine has.

    Each part is listed with its version, its path and its purpose; for missing parts, with the command that
    installs them. Exit code 1 if a part is missing without which nothing can be compiled.
    """
    from microfold.cli.installation import find_parts

    with working("looking for compilers, simulators and extras", as_json):
        parts = find_parts()
    missing = [part for part in parts if not part.version]
    if as_json:
        print_json(parts)
    else:
        from microfold.reporting.console import console
        from microfold.reporting.tables import Table, TableColumn

        columns = (
            TableColumn("part"),
            TableColumn("version"),
            TableColumn("enables"),
            TableColumn("path", rank=1),
        )
        table = Table(f"microfold {__version__} on {sys.platform}", columns)
        for part in parts:
            table.add(part.name, part.version or "MISSING", part.enables, part.path)
        console.show(table)
        for part in missing:
            console.print(f"{part.name} is missing: {part.install}", soft_wrap=True)
        if not missing:
            console.print("Nothing is missing.")
    if any(part.required for part in missing):
        raise typer.Exit(1)
