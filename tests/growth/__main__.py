"""How the time of a compilation grows with the graph: ``python -m tests.growth [FAMILY …]``.

For each family of graphs and each size, the seconds of the whole way from text to C, and the stages that grow
fastest. A family is left at the first size that takes longer than ``--limit`` seconds.
"""

from __future__ import annotations

import argparse
import math
import time

from rich.console import Console
from rich.table import Table

from tests.growth.families import FAMILIES, build
from tests.growth.stages import Stages, other_passes, whole_compilation

SIZES = (125, 500, 2000, 8000)


def measure(family: str, size: int) -> Stages:
    """One member of a family, all stages."""
    graph = build(family, size)
    stages = Stages(time.process_time)
    whole_compilation(graph, stages)
    other_passes(graph, stages)
    return stages


def steepest(before: Stages, after: Stages, factor: float) -> str:
    """The stages that matter, with the power of the size that they grow with."""
    found = sorted(
        (
            (math.log(spent / before.spent[name], factor), name)
            for name, spent in after.spent.items()
            if before.spent[name] > 0 and spent > 0.03 * after.spent.total()
        ),
        reverse=True,
    )
    return ", ".join(f"{name} n^{power:.1f}" for power, name in found[:2])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.growth", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a family is left")
    options = parser.parse_args()
    unknown = set(options.families) - FAMILIES.keys()
    if unknown:
        parser.error(f"no family {', '.join(sorted(unknown))}; they are {', '.join(FAMILIES)}")
    table = Table("family", *(f"{size}" for size in options.sizes), "steepest stages", title="CPU seconds")
    measure("clips", 8)  # what is loaded once
    for family in options.families or FAMILIES:
        seconds: list[str] = []
        found: list[Stages] = []
        for size in options.sizes:
            found.append(measure(family, size))
            seconds.append(f"{found[-1].spent.total():.2f}")
            if found[-1].spent.total() > options.limit:
                break
        factor = options.sizes[len(found) - 1] / options.sizes[len(found) - 2]
        grown = steepest(found[-2], found[-1], factor) if len(found) > 1 else ""
        table.add_row(family, *seconds, *[""] * (len(options.sizes) - len(seconds)), grown)
    Console().print(table)


if __name__ == "__main__":
    main()
