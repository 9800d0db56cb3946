"""List of targets in the text output."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.reporting.console import console
from microfold.reporting.tables import Table, TableColumn
from microfold.target import Target


def print_targets(targets: Sequence[Target]) -> None:
    """Print the table of targets."""
    columns = ("name", "description", "features", "simulated board")
    table = Table("targets", [*map(TableColumn, columns)])
    for target in targets:
        table.add(target.name, target.description, ", ".join(sorted(target.features)), target.board)
    console.show(table)
