"""Draws by hypothesis that take little time: graphs are made of hundreds of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

# A strategy is made, and labelled, once for all draws.
integers = cache(st.integers)
booleans = st.booleans()


def pick(draw: st.DrawFn, options: Sequence[T]) -> T:
    """One of the options, the first being the simplest, by its index: they need no strategy of their own."""
    return options[draw(integers(0, len(options) - 1))]
