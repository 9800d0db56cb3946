"""Printed summary of tuning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from microfold.reporting.console import Output
from microfold.reporting.tables import Table, TableColumn, number
from microfold.reporting.terminal.figures import cycles_error
from microfold.tune.tune import Tuning

_console = Output()


def _number(value: int | None) -> str:
    return "no" if value is None else f"{value:,}"


def print_tuning(model: str, found: Sequence[Tuning], database: Path) -> None:
    """Print each layer before and after tuning, followed by the results for whole runs."""
    for tuning in found:
        columns = (TableColumn("layer"), TableColumn("kernel as estimated", rank=1), number("cycles"))
        columns += (TableColumn("kernel as measured"), number("cycles"), number("measured", rank=2))
        table = Table(f"{model}, optimize = {tuning.optimize}, {tuning.where}", columns)
        for layer in tuning.layers:
            before = _number(layer.cycles_before) if layer.before else ""
            after = "the same" if layer.before == layer.after else layer.after
            cycles = _number(layer.cycles_after)
            table.add(layer.name, layer.before, before, after, cycles, str(layer.variants))
        _console.show(table)
        if tuning.choices:
            _console.show(_choices(tuning))
        for reason in tuning.left_out:
            _console.print(f"not measured: {reason}")
        if tuning.failed_before:
            count = f"{len(tuning.failed_before)} program{'s' if len(tuning.failed_before) > 1 else ''}"
            _console.print(f"not measured: {count} that failed before; --retry tries again:")
            for reason in tuning.failed_before:
                _console.print(f"  {reason}")
        for board, reason in tuning.boards_lost.items():
            _console.print(f"left out: board {board}: {reason}")
        before, after = tuning.total_before, tuning.total_after
        if before is not None and after is not None:
            change = f"{100 * abs(after - before) / max(before, 1):.1f} %"
            how = "more, because of the objective's price of memory" if after > before else "fewer"
            _console.print(
                f"a whole run: {before:,} cycles as estimated, {after:,} as measured ({change} {how})"
            )
        if tuning.estimate is not None:
            _console.print(_estimate(tuning))
        _console.print(f"RAM {tuning.ram:,} bytes, constants {tuning.flash:,} bytes\n")
    if len(found) > 1:
        _print_comparison(model, found)
    _console.print(f"for builds: --database {database}")


def _estimate(tuning: Tuning) -> str:
    return (
        f"estimate of the cost model: {_number(tuning.estimate)} cycles (off by "
        f"{cycles_error(tuning.error)}, on top of the error of its counts; no wait states, caches and buses)"
    )


def _choices(tuning: Tuning) -> Table:
    columns = (
        TableColumn("choice"),
        TableColumn("as estimated"),
        number("cycles"),
        TableColumn("as measured"),
    )
    table = Table("whole runs", (*columns, number("cycles"), TableColumn("others", rank=1)))
    for choice in tuning.choices:
        before, after = (choice.cycles.get(option) for option in (choice.before, choice.after))
        taken = "the same" if choice.before == choice.after else choice.after
        others = [option for option in choice.cycles if option not in (choice.before, choice.after)]
        told = ", ".join(f"{option} {choice.cycles[option]:,}" for option in others)
        table.add(choice.name, choice.before, _number(before), taken, _number(after), told)
    return table


def _print_comparison(model: str, found: Sequence[Tuning]) -> None:
    columns = (
        TableColumn("level"),
        number("cycles"),
        TableColumn("which are"),
        number("constants"),
        number("RAM"),
    )
    table = Table(f"{model}: a whole run, bytes", columns)
    for tuning in found:
        measured = tuning.total_after is not None
        cycles = tuning.total_after if measured else tuning.estimate
        how = "measured" if measured else "estimated"
        table.add(tuning.optimize, _number(cycles), how, f"{tuning.flash:,}", f"{tuning.ram:,}")
    _console.show(table)
    if any(tuning.total_after is None and tuning.estimate is not None for tuning in found):
        _console.print(
            f"estimates are off by {cycles_error(found[0].error)}, on top of the error of their counts"
        )
    known = [(tuning.total_after, tuning.optimize) for tuning in found if tuning.total_after is not None]
    if known:
        cycles, _ = min(known, key=lambda each: each[0])
        levels = " and ".join(level for total, level in known if total == cycles)
        others = "" if len(known) == len(found) else " of the levels that were measured"
        _console.print(f"the least time{others}: --optimize {levels}, {cycles:,} cycles\n")
