"""Sweeps of which quick runs, and runs of all tests, make a part, and continuous integration all."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import pytest


def quick(items: Iterable[Any], every: int = sys.maxsize) -> list[Any]:
    """Values of one parameter: the first, and every so many after it, stand for all in quick runs.

    The others are slow. Items may be what `sampled` gives.
    """
    return [_slow(item) if index % every else item for index, item in enumerate(items)]


def _slow(item: Any) -> Any:
    if hasattr(item, "marks"):  # a `pytest.param`
        return pytest.param(*item.values, marks=[*item.marks, pytest.mark.slow])
    return pytest.param(item, marks=pytest.mark.slow)


def sampled(items: Iterable[Any], every: int) -> list[Any]:
    """Values of one parameter: the first, and every so many after it; the others are for `-m exhaustive`."""
    return sampled_rows(((item,) for item in items), every)


def sampled_rows(rows: Iterable[Iterable[Any]], every: int) -> list[Any]:
    """The same of several parameters; the number should share no divisor with the length of an inner list."""
    return [
        pytest.param(*row, marks=pytest.mark.exhaustive) if index % every else pytest.param(*row)
        for index, row in enumerate(rows)
    ]
