"""Prices of time, flash and RAM, and limits: all that an exact choice of kernels is asked for.

A price is for one percent, where a hundred percent are the least that any choice of kernels has for this
model: so prices mean the same for every model. What has a limit has no price below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from microfold.options import Options, parse_prices
from microfold.support.frozen import frozen


@frozen
class Figures:
    """Time and memory of a choice of kernels, for one inference.

    Attributes:
        cycles: estimated, or measured where `tune` has measured.
        flash: bytes of constants and estimated bytes of code.
        arena: bytes.
    """

    cycles: float
    flash: int
    arena: int


@frozen
class Objective:
    """Prices of one percent of the time, the flash and the arena; infinite: all others only decide ties."""

    cycles: float = 0.0
    flash: float = 0.0
    arena: float = 0.0

    def value(self, figures: Figures, reference: Figures) -> tuple[float, float]:
        """Return what figures cost; less is better, and the first number comes before the second.

        Args:
            reference: the figures that are a hundred percent.
        """
        time = figures.cycles / max(reference.cycles, 1.0)
        flash = self.flash * figures.flash / max(reference.flash, 1)
        arena = self.arena * figures.arena / max(reference.arena, 1)
        if math.isinf(self.cycles):
            return time, flash + arena
        return self.cycles * time + flash + arena, 0.0


# The price of one percent of the time at each level, where one percent of the flash costs 1, and one of the
# RAM as well. `speed` pays any price, and the others decide between equally fast choices.
TIME_PRICES: Mapping[str, float] = {"size": 0.3, "balanced": 3.0, "speed": math.inf}


@frozen
class Limits:
    """Upper limits, in bytes. Infinite: there is none."""

    flash: float = math.inf
    arena: float = math.inf


def objective_of(options: Options) -> Objective:
    """Return the objective that a build asks for: that of its level, or prices of its own.

    With ``io=rows``, which is asked for to save RAM, one percent of it is worth one of the time.
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
