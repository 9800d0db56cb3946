"""Terms of code size: numbers that follow from the specification of a function and the numbers of its layer.

A term is text, so that data files can name it. It is a product of factors with ``*`` between them:

- ``base``: 1.
- ``unroll``: the number itself; 1 for True; of a tuple the sum of its numbers.
- ``taps.count``: how many numbers a tuple has, or how many statements a text has.
- ``requantize=short``: 1 where the choice has this value, else 0.
- ``channels%4``: 1 where 4 divides the number, else 0. Layer fields are only compared so, and with 0 and 1.
- ``statements~expf``: how often a word stands in a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache

Values = Mapping[str, object]
_FORM = re.compile(r"(?P<name>[\w.]+?)(?:(?P<count>\.count)|%(?P<divisor>\d+)|=(?P<value>.*)|~(?P<word>.*))?")
_BASE = "base"


@cache
def term(text: str) -> Callable[[Values], float]:
    """Return the function that computes a term from the choices and fields by their names.

    A name that is absent counts 0.
    """
    factors = [_factor(part) for part in text.split("*")] if text != _BASE else []

    def product(values: Values) -> float:
        found = 1.0
        for factor in factors:
            found *= factor(values)
        return found

    return product


def _factor(text: str) -> Callable[[Values], float]:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"a term of code size must be as in `code_terms`; {text!r} is not")
    name, value, word = match["name"], match["value"], match["word"]
    if value is not None:
        return lambda values: float(name in values and as_text(values[name]) == value)
    if word is not None:
        whole = re.compile(rf"(?<![\w.]){re.escape(word)}(?![\w.])")
        return lambda values: float(len(whole.findall(as_text(values.get(name, "")))))
    if match["divisor"]:
        divisor = int(match["divisor"])
        return lambda values: float(name in values and _number(values[name]) % divisor == 0)
    if match["count"]:
        return lambda values: _count(values.get(name, ()))
    return lambda values: _number(values.get(name, 0))


def as_text(value: object) -> str:
    """Return a value as terms write it: without ``*``, which stands between factors."""
    return str(value).replace("*", "^")


def numbers(value: object) -> Iterable[float]:
    """Yield the numbers of a tuple, and of the tuples in it."""
    if isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            yield from numbers(part)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, (int, float)):
        yield float(value)


def _count(value: object) -> float:
    if isinstance(value, str):
        return 1.0 + value.count(";")
    return _count_and_sum(value)[0] if isinstance(value, tuple) else float(isinstance(value, (int, float)))


def _number(value: object) -> float:
    if isinstance(value, tuple):
        return _count_and_sum(value)[1]  # pyright: ignore[reportUnknownArgumentType]
    return float(value) if isinstance(value, (int, float)) else 0.0


@lru_cache(1024)
def _count_and_sum(value: tuple[object, ...]) -> tuple[float, float]:
    """Return how many numbers a tuple has, and their sum."""
    found = [*numbers(value)]
    return float(len(found)), sum(found)
