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
# Of a channel that is requantised to int8: ends of its sums, bias, zero point and limits of outputs.
CHANNEL = {
    "ends": st.tuples(st.integers(-(1 << 14), 1 << 14), st.integers(-(1 << 14), 1 << 14)),
    "bias": st.integers(-(1 << 17), 1 << 17),
    "zero_point": st.integers(-128, 127),
    "limits": st.tuples(st.integers(-128, 127), st.integers(-128, 127)),
}


def pick(draw: st.DrawFn, options: Sequence[T]) -> T:
    """One of the options, the first being the simplest, by its index: they need no strategy of their own."""
    return options[draw(integers(0, len(options) - 1))]
