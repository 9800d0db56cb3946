"""Sweeps of which quick runs, and runs of all tests, make a part, and continuous integration all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first_quick(items: Iterable[Any]) -> list[Any]:
    """Values of one parameter: the first stands for all in quick runs; the others are slow."""
    first, *others = items
    return [first, *(pytest.param(item, marks=pytest.mark.slow) for item in others)]


def sampled(items: Iterable[Any], every: int) -> list[Any]:
    """Values of one parameter: the first, and every so many after it; the others are for `-m exhaustive`."""
    return sampled_rows(((item,) for item in items), every)


def sampled_rows(rows: Iterable[Iterable[Any]], every: int) -> list[Any]:
    """The same of several parameters; the number should share no divisor with the length of an inner list."""
    return [
        pytest.param(*row, marks=pytest.mark.exhaustive) if index % every else pytest.param(*row)
        for index, row in enumerate(rows)
    ]
