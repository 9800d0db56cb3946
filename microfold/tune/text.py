"""What tuning prints for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from microfold.report.console import Output
from microfold.report.tables import Column, Table, number
from microfold.tune.tune import Tuning

_console = Output()


def _number(value: int | None) -> str:
    return "no" if value is None else f"{value:,}"


def print_tuning(model: str, found: Sequence[Tuning], database: Path) -> None:
    """Each layer before and after tuning, then what that means for whole runs."""
    for tuning in found:
        columns = (Column("layer"), Column("kernel as estimated", rank=1), number("cycles"))
        columns += (Column("kernel as measured"), number("cycles"), number("measured", rank=2))
        table = Table(f"{model}, optimize = {tuning.optimize}, {tuning.where}", columns)
        for layer in tuning.layers:
            cycles = (_number(layer.cycles_before), _number(layer.cycles_after))
            after = "the same" if layer.before == layer.after else layer.after
            table.add(layer.name, layer.before, cycles[0], after, cycles[1], str(layer.variants))
        _console.show(table)
        for reason in tuning.left_out:
            _console.print(f"not measured: {reason}")
        for board, reason in tuning.boards_lost.items():
            _console.print(f"left out: board {board}: {reason}")
        before, after = tuning.total_before, tuning.total_after
        if before is not None and after is not None:
            gain = f"{100 * (before - after) / max(before, 1):.1f} %"
            _console.print(
                f"a whole run: {before:,} cycles as estimated, {after:,} as measured ({gain} fewer)"
            )
        _console.print(f"RAM {tuning.ram:,} bytes, constants {tuning.flash:,} bytes\n")
    _console.print(f"for builds: --database {database}")
