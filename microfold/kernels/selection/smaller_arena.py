"""What a smaller arena is worth, where a rewrite of the graph or rows lead to it with nothing asked."""

from __future__ import annotations

import math
from typing import Protocol

from microfold.kernels.selection.peak_relief import FEWEST_BYTES, MOST_TIME, TIME_FOR_ARENA
from microfold.kernels.selection.shared_functions import BYTES_FOR_TIME

# Of the time, what whole tensors may take more than rows, where both fit.
MORE_THAN_ROWS = 0.01
# Bytes of flash for one of the arena: devices have several times as much of it. `size` gives none.
FLASH_FOR_ARENA = 4
# Of the arena of whole tensors, what rows must save at least, and how many times as large as the part of the
# flash that they add this must be.
LEAST_PART, ARENA_FOR_FLASH = 0.1, 3
# Bytes of code and of the description of what happens that programs by rows have besides their calls.
ROWS_CODE = 1100


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


def most_arena(whole: int) -> int:
    """Bytes of the largest arena for which rows are worth it where whole tensors have so many."""
    return whole - max(FEWEST_BYTES, math.ceil(LEAST_PART * whole))


def rows_pay(arena: int, less: int, flash: int, more: int, level: str) -> bool:
    """Whether rows save enough of the arena for the flash that they add.

    Args:
        arena, less: bytes of whole tensors' arena, and of that of rows.
        flash, more: bytes of constants and of functions of both.
    """
    added = more + ROWS_CODE - flash
    if less > most_arena(arena):
        return False
    return added <= 0 if level == "size" else (arena - less) * flash >= ARENA_FOR_FLASH * added * arena
