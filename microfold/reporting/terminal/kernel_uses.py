"""Text output of `microfold bench --suite --kernels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from microfold.reporting.kernel_wins import FEW_LAYERS, LEAST_WIN, LEAST_WIN_OF_FEW, KernelUse
from microfold.reporting.tables import Table, TableColumn, number
from microfold.reporting.terminal.figures import console


def print_kernel_uses(uses: Sequence[KernelUse], reports: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with a row for each kernel, and the number of builds that failed."""
    failed = sum("error" in report for report in reports)
    columns = [TableColumn("kernel"), number("builds"), number("win"), TableColumn("rule")]
    columns += [TableColumn("model", rank=1), TableColumn("target"), TableColumn("level")]
    columns += [number(name, rank=3) for name in ("cycles", "flash", "RAM")]
    table = Table(f"kernels of {len(reports) - failed:,} builds", [*columns, TableColumn("instead", rank=2)])
    for use in uses:
        best, figures = use.best, [""] * 4
        if best is not None:
            growth = map(_percent, (best.cycles, best.flash, best.arena))
            figures = [*growth, ", ".join(best.others)]
        win = "needed" if use.needed else _percent(best.win if best is not None else None)
        rule = "" if use.kept else "below"
        table.add(use.kernel, f"{use.builds:,}", win, rule, use.model, use.target, use.level, *figures)
    console.show(table)
    console.print(
        "win: largest growth of the objective, or of a figure with its highest price, if the kernel did not "
        "exist; needed: a build has no other kernel"
    )
    console.print(
        f"below: no win of {LEAST_WIN:.0%}, or of {LEAST_WIN_OF_FEW:.0%} in a model with fewer than "
        f"{FEW_LAYERS} layers"
    )
    if failed:
        console.print(f"{failed} of {len(reports)} builds failed: --json has their errors")


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.1%}"
