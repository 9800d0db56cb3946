"""Axes: from numbers to coordinates of a drawing."""

from __future__ import annotations

import math
from collections.abc import Iterable

from microfold.support.frozen import frozen

# Units of all drawings, which are CSS pixels: what the page has room for on a desktop.
WIDTH = 1080.0
# Width of a character of a drawing's text, in the same units: that of digits in DejaVu Sans at 11.5 pixels,
# the widest font that browsers take for `system-ui`.
CHARACTER = 7.2


def number(value: float | None) -> str:
    """A count for people; a dash where it is not known."""
    return "\N{EN DASH}" if value is None else f"{value:,.0f}"


def signed(text: str) -> str:
    """The text of a number with a minus sign, where Python writes a hyphen."""
    return text.replace("-", "\N{MINUS SIGN}")


def rank(value: float | None) -> float:
    """What a table is sorted by; what is not known comes before all counts."""
    return -1 if value is None else value


def shortened(text: str, length: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


@frozen
class Tick:
    """A mark of an axis: where, and what stands there."""

    at: float
    text: str


@frozen
class Linear:
    """A scale that maps 0 to `start` and `limit` to `end`."""

    limit: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = value / self.limit if self.limit else 0.0
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, count: int = 5) -> list[Tick]:
        """About so many round numbers from 0 to the limit."""
        if not self.limit:
            return [Tick(self(0), "0")]
        step = max(round_number(self.limit / count), 1)
        return [Tick(self(v), number(v)) for v in range(0, math.floor(self.limit) + 1, step)]


@frozen
class Logarithmic:
    """A scale that maps `low` to `start` and `high` to `end`, both above 0, by their logarithms."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = math.log(self.high / self.low)
        return round(self.start + math.log(value / self.low) / span * (self.end - self.start), 1)

    def ticks(self) -> list[Tick]:
        """The numbers 1, 2 and 5 times a power of ten between the ends; powers alone where these are many."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        digits = (1, 2, 5) if len(powers) <= 4 else (1,)
        found = [digit * 10.0**power for power in powers for digit in digits]
        return [Tick(self(v), number(v)) for v in found if self.low <= v <= self.high]


def around(values: Iterable[float], start: float, end: float) -> Logarithmic:
    """A logarithmic scale on which all values have some room around them; those below 1 count as 1."""
    found = [max(value, 1.0) for value in values]
    return Logarithmic(min(found) / 1.3, max(found) * 1.3, start, end)


def round_number(value: float) -> int:
    """The next of 1, 2 and 5 times a power of ten."""
    power = 10 ** max(math.floor(math.log10(value)), 0) if value >= 1 else 1
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= value)


@frozen
class Column:
    """The place of a layer on an axis of layers.

    Attributes:
        label: its number, or nothing where there is no room for it.
    """

    layer: int
    x: float
    width: float
    label: str

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


def columns(count: int, left: float, right: float, narrowest: float, widest: float) -> list[Column]:
    """Places of so many layers from left to right, as wide as there is room for within the limits."""
    step = min(max((right - left) / max(count, 1), narrowest), widest)
    every = math.ceil(24 / step)
    return [
        Column(i, round(left + i * step, 1), round(step, 1), str(i) if i % every == 0 else "")
        for i in range(count)
    ]
