"""Terms of code size: numbers computed from the specification of a function and the fields of its layer.

A term is text, so that data files can name it. It is a product of factors, separated by ``*``:

- ``base``: 1.
- ``unroll``: the number itself; 1 for True; the sum of the numbers of a tuple.
- ``taps.count``: the number of elements of a tuple, or of statements of a text.
- ``requantize=short``: 1 if the choice has this value, else 0.
- ``channels%4``: 1 if the number is a multiple of 4, else 0. Layer fields are compared only in this way, and
  with 0 and 1.
- ``statements~expf``: the number of occurrences of a word in a text.
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
    """Return the function that computes a term from choices and fields by name.

    An absent name counts as 0.
    """
    factors = [_factor(part) for part in text.split("*")] if text != _BASE else []

    def product(values: Values) -> float:
        found = 1.0
        for factor in factors:
            found *= factor(values)
        return found

    return product


@cache
def names(text: str) -> frozenset[str]:
    """Return the names of the choices and fields in a term."""
    if text == _BASE:
        return frozenset()
    return frozenset(_match(part)["name"] for part in text.split("*"))


def _match(text: str) -> re.Match[str]:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"a term of code size must have a form of `code_terms`; got {text!r}")
    return match


def _factor(text: str) -> Callable[[Values], float]:
    match = _match(text)
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
    """Return a value as terms write it, without ``*``, which separates factors."""
    return str(value).replace("*", "^")


def numbers(value: object) -> Iterable[float]:
    """Yield all numbers of a tuple, including nested tuples."""
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
    """Return the number of numbers in a tuple, and their sum."""
    found = [*numbers(value)]
    return float(len(found)), sum(found)
