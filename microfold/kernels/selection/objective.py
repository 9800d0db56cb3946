"""What a build is optimised for: the prices of time, flash and RAM, and the limits.

The three levels are three lists of prices. A price is for one percent, where a hundred percent are the least
that any choice of kernels has for this model:

- `speed`: the fastest there is; of equally fast ones the smallest.
- `balanced`: one percent of the time is worth three percent of the flash, or three percent of the RAM.
- `size`: a tenth of that price for time.

What has a limit has no price below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from microfold.options import Options
from microfold.support.frozen import frozen


@frozen
class Figures:
    """What a choice of kernels takes in one inference.

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


@frozen
class Limits:
    """Upper limits: cycles of an inference, and bytes. Infinite: there is none."""

    cycles: float = math.inf
    flash: float = math.inf
    arena: float = math.inf


# The price of time where flash and arena have a price of one each, by level. The two finite numbers are a
# decision: docs/kernels.md shows what others lead to.
TIME_PRICES: Mapping[str, float] = {"size": 0.3, "balanced": 3.0, "speed": math.inf}


def objective_of(options: Options) -> Objective:
    """Return the objective that a build asks for."""
    flash, arena = float(options.flash is None), float(options.ram is None)
    return Objective(TIME_PRICES[options.optimize], flash, arena)
