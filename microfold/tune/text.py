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
    if len(found) > 1:
        _print_comparison(model, found)
    _console.print(f"for builds: --database {database}")


def _print_comparison(model: str, found: Sequence[Tuning]) -> None:
    """A row for each level, and which one takes the least time, as far as all were measured."""
    columns = (Column("level"), number("cycles"), Column("which are"), number("constants"), number("RAM"))
    table = Table(f"{model}: a whole run, bytes", columns)
    for tuning in found:
        measured = tuning.total_after is not None
        cycles = tuning.total_after if measured else tuning.estimate
        how = "measured" if measured else "estimated"
        table.add(tuning.optimize, _number(cycles), how, f"{tuning.flash:,}", f"{tuning.ram:,}")
    _console.show(table)
    known = [(tuning.total_after, tuning.optimize) for tuning in found if tuning.total_after is not None]
    if known:
        cycles, _ = min(known, key=lambda each: each[0])
        levels = " and ".join(level for total, level in known if total == cycles)
        others = "" if len(known) == len(found) else " of the levels that were measured"
        _console.print(f"the least time{others}: --optimize {levels}, {cycles:,} cycles\n")
