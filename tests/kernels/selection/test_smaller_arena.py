"""What a smaller arena is worth."""

from __future__ import annotations

from dataclasses import dataclass

from microfold.kernels.selection.shared_functions import BYTES_FOR_TIME
from microfold.kernels.selection.smaller_arena import dearer_within_ram, too_dear


@dataclass(frozen=True)
class Taken:
    arena: int = 10_000
    cycles: float = 1_000_000
    flash: int = 50_000
    by_rows: bool = False


def test_time_for_arena() -> None:
    """A tenth of the part of the arena, and 2 % at most."""
    assert too_dear(Taken(), Taken(9000, 1_010_000), "balanced") is None
    reason = too_dear(Taken(), Taken(9000, 1_010_001), "balanced")
    assert reason == "1000 bytes of arena would take 10001 cycles more"
    assert too_dear(Taken(), Taken(5000, 1_020_000), "balanced") is None
    assert too_dear(Taken(), Taken(5000, 1_020_001), "balanced") is not None
    assert too_dear(Taken(), Taken(5000, 1_000_001), "speed") is not None
    assert too_dear(Taken(), Taken(5000, 1_000_000), "speed") is None


def test_flash_for_arena() -> None:
    assert too_dear(Taken(), Taken(9000, flash=54_000), "balanced") is None
    reason = too_dear(Taken(), Taken(9000, flash=54_001), "balanced")
    assert reason == "1000 bytes of arena would take 4001 bytes of flash more"
    assert too_dear(Taken(), Taken(9000, flash=50_001), "size") is not None
    assert too_dear(Taken(), Taken(9000, flash=50_000), "size") is None


def test_time_for_flash() -> None:
    """As much as functions are chosen by, where flash is asked for."""
    time = 1_000_000 * (0.01 + 600 / BYTES_FOR_TIME)
    assert too_dear(Taken(), Taken(9000, 1_000_000 + time - 1, 49_400), "size") is None
    assert too_dear(Taken(), Taken(9000, 1_000_000 + time + 1, 49_400), "size") is not None
    assert too_dear(Taken(), Taken(9000, 1_000_000 + time - 1, 49_400), "balanced") is not None


def test_time_decides_below_a_limit() -> None:
    assert dearer_within_ram(Taken(), Taken(20_000, 999_999)) is None
    assert dearer_within_ram(Taken(), Taken(5000, 1_000_000)) is not None
    rows = Taken(5000, by_rows=True)
    assert dearer_within_ram(rows, Taken(9000, 1_009_999)) is None
    assert dearer_within_ram(rows, Taken(9000, 1_010_000)) == (
        "it would take about 1010000 cycles; row by row, it takes 1000000"
    )
