"""Objective of exact kernel selection: prices of time, flash and RAM, and limits.

A price is for one percent. A hundred percent is the least time, flash or RAM that any choice of kernels needs
for the model, so that prices mean the same for every model. A memory with a limit has no price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from microfold.options import Options, parse_prices


class SelectionFigures(Struct, frozen=True):
    """Time and memory of a choice of kernels, for one inference.

    Attributes:
        cycles: cycles, measured by `tune` or estimated.
        flash: bytes of constants, plus estimated bytes of code.
        arena: bytes of the arena.
    """

    cycles: float
    flash: int
    arena: int


class Objective(Struct, frozen=True):
    """Prices of one percent of time, flash and arena; an infinite one: the others only break ties."""

    cycles: float = 0.0
    flash: float = 0.0
    arena: float = 0.0

    def value(self, figures: SelectionFigures, reference: SelectionFigures) -> tuple[float, float]:
        """Return the cost of figures; less is better, and the first number decides before the second one.

        Args:
            reference: figures that count as a hundred percent.
        """
        time = figures.cycles / max(reference.cycles, 1.0)
        flash = self.flash * figures.flash / max(reference.flash, 1)
        arena = self.arena * figures.arena / max(reference.arena, 1)
        if math.isinf(self.cycles):
            return time, flash + arena
        return self.cycles * time + flash + arena, 0.0


# Price of one percent of the time at each level; one percent of the flash or of the RAM costs 1. `speed` pays
# any price, and the other prices decide between equally fast choices.
TIME_PRICES: Mapping[str, float] = {"size": 0.3, "balanced": 3.0, "speed": math.inf}


class Limits(Struct, frozen=True):
    """Upper limits, in bytes; infinite if there is no limit."""

    flash: float = math.inf
    arena: float = math.inf


def objective_of(options: Options) -> Objective:
    """Return the objective of a build: the prices of its optimisation level, or its own prices.

    ``io=rows`` is used to save RAM, so that one percent of the RAM then costs at least as much as one of the
    time.
    """
    time = TIME_PRICES[options.optimize]
    prices = {"cycles": time, "flash": 1.0, "ram": 1.0}
    if options.io == "rows" and math.isfinite(time):
        prices["ram"] = max(time, 1.0)
    if options.objective:
        prices = parse_prices(options.objective)
    flash = prices.get("flash", 0.0) if options.flash is None else 0.0
    arena = prices.get("ram", 0.0) if options.ram is None else 0.0
    return Objective(prices.get("cycles", 0.0), flash, arena)
