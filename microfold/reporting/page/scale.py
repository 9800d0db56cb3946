"""Axes of drawings: conversion of numbers to coordinates and text."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

# Width of drawings in CSS pixels, the width of the page on a desktop.
WIDTH = 1080.0
# Width of a character in drawings, in CSS pixels: digits in DejaVu Sans at 11.5 pixels, the widest font that
# browsers use for `system-ui`.
CHARACTER = 7.2


def number(value: float | None) -> str:
    """Return a count as text; a dash if it is unknown."""
    return "\N{EN DASH}" if value is None else f"{value:,.0f}"


def signed(text: str) -> str:
    """Return the text of a number with a minus sign in place of a hyphen."""
    return text.replace("-", "\N{MINUS SIGN}")


def rank(value: float | None) -> float:
    """Return the sort key of a count in a table; unknown counts come first."""
    return -1 if value is None else value


def shortened(text: str, length: int) -> str:
    """Return a text of at most `length` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


class Tick(Struct, frozen=True):
    """Tick of an axis: position and text."""

    at: float
    text: str


class Linear(Struct, frozen=True):
    """Linear scale that maps 0 to `start` and `limit` to `end`."""

    limit: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = value / self.limit if self.limit else 0.0
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, count: int = 5) -> list[Tick]:
        """Return about `count` round numbers from 0 to the limit."""
        if not self.limit:
            return [Tick(self(0), "0")]
        step = max(round_number(self.limit / count), 1)
        return [Tick(self(v), number(v)) for v in range(0, math.floor(self.limit) + 1, step)]


class Logarithmic(Struct, frozen=True):
    """Logarithmic scale that maps `low` to `start` and `high` to `end`; both are above 0."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = math.log(self.high / self.low)
        return round(self.start + math.log(value / self.low) / span * (self.end - self.start), 1)

    def ticks(self) -> list[Tick]:
        """Return 1, 2 and 5 times the powers of ten in the range; only the powers if these are many."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        digits = (1, 2, 5) if len(powers) <= 4 else (1,)
        found = [digit * 10.0**power for power in powers for digit in digits]
        return [Tick(self(v), number(v)) for v in found if self.low <= v <= self.high]


def around(values: Iterable[float], start: float, end: float) -> Logarithmic:
    """Return a logarithmic scale with a margin around all values; values below 1 count as 1."""
    found = [max(value, 1.0) for value in values]
    return Logarithmic(min(found) / 1.3, max(found) * 1.3, start, end)


def round_number(value: float) -> int:
    """Return the next larger number that is 1, 2 or 5 times a power of ten."""
    power = 10 ** max(math.floor(math.log10(value)), 0) if value >= 1 else 1
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= value)


class ChartColumn(Struct, frozen=True):
    """Position of a layer on an axis of layers.

    Attributes:
        label: number of the layer; empty if it does not fit.
    """

    layer: int
    x: float
    width: float
    label: str

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


def columns(count: int, left: float, right: float, narrowest: float, widest: float) -> list[ChartColumn]:
    """Return the positions of `count` layers from left to right, as wide as possible within the limits."""
    step = min(max((right - left) / max(count, 1), narrowest), widest)
    every = math.ceil(24 / step)
    return [
        ChartColumn(i, round(left + i * step, 1), round(step, 1), str(i) if i % every == 0 else "")
        for i in range(count)
    ]
