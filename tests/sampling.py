"""Sweeps that a run of all tests samples, and continuous integration makes in full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(items: Iterable[Any], every: int) -> list[Any]:
    """Parameters: the first, and every so many after it; the others are for `-m exhaustive`."""
    return [
        pytest.param(item, marks=pytest.mark.exhaustive) if index % every else pytest.param(item)
        for index, item in enumerate(items)
    ]
