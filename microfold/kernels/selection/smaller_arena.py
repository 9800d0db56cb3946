"""What a smaller arena is worth, where a rewrite of the graph leads to it with nothing asked."""

from __future__ import annotations

from typing import Protocol

from microfold.kernels.selection.peak_relief import MOST_TIME, TIME_FOR_ARENA
from microfold.kernels.selection.shared_functions import BYTES_FOR_TIME

# Of the time, what whole tensors may take more than rows, where both fit.
MORE_THAN_ROWS = 0.01
# Bytes of flash for one of the arena: devices have several times as much of it. `size` gives none.
FLASH_FOR_ARENA = 4


class Estimate(Protocol):
    """What a graph takes, see `microfold.passes.context.ArenaEstimate`."""

    @property
    def arena(self) -> int: ...

    @property
    def cycles(self) -> float: ...

    @property
    def flash(self) -> int: ...

    @property
    def by_rows(self) -> bool: ...


def too_dear(before: Estimate, after: Estimate, level: str) -> str | None:
    """Why a smaller arena is not worth what it takes; None if it is.

    Time is worth as much as where other variants of kernels take it, but for `speed`, which gives none;
    `size` gives more for flash that is saved besides.
    """
    saved = before.arena - after.arena
    time, flash = after.cycles - before.cycles, after.flash - before.flash
    part = 0.0 if level == "speed" else min(TIME_FOR_ARENA * saved / before.arena, MOST_TIME)
    if level == "size":
        part += max(-flash, 0) / BYTES_FOR_TIME
    if time > part * before.cycles:
        return f"{saved} bytes of arena would take {time:.0f} cycles more"
    if flash > (0 if level == "size" else FLASH_FOR_ARENA * saved):
        return f"{saved} bytes of arena would take {flash} bytes of flash more"
    return None


def dearer_within_ram(before: Estimate, after: Estimate) -> str | None:
    """Where both fit what is allowed: time decides. Whole tensors may take a little more than rows."""
    most = (1 + MORE_THAN_ROWS if before.by_rows else 1) * before.cycles
    if after.cycles < most:
        return None
    how = "row by row, it takes" if before.by_rows else "as it is, it fits with"
    return f"it would take about {after.cycles:.0f} cycles; {how} {before.cycles:.0f}"
