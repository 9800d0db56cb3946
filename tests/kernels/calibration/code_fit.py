"""Terms and coefficients that fit measured code sizes: terms are taken one by one, the best one first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from microfold.kernels.cost.code_terms import Values, as_text, term
from tests.kernels.calibration.measure import spread

Array = npt.NDArray[np.float64]

# Words of texts, operators included; of names with numbers there are too many.
_WORDS = re.compile(r"[A-Za-z_][\w.]*|[-+/<>?^]")
_NUMBERED = re.compile(r"[A-Za-z]+\d+")

# Columns of a data file, see `code_rows.CodeRow`.
COLUMNS = ("shared-O2", "alone-O2", "parts-O2", "shared-Os", "alone-Os", "parts-Os")
# Numbers that may divide those of a layer, so that no elements are left over.
DIVISORS = (2, 4, 8)
# Fields with larger numbers are multipliers and the like, whose values no code depends on.
LARGEST_FIELD = 32767
# Samples that a term of a field must hold for, and not: chance makes any number tell a few functions apart.
FEWEST_SAMPLES = 4
# Terms up to which all products of two are tried.
MOST_PAIRED = 60
# Different values of a choice up to which each may have a term of its own.
FEW_VALUES = 12
# Terms of one kernel, besides its base; and functions for each of them.
MOST_TERMS = 14
FUNCTIONS_PER_TERM = 2.2
# A term is taken if the root mean square of relative errors falls by such a part of it.
GAIN = 0.06
# Below this root mean square of relative errors, no more terms are taken.
EXACT = 0.012
# A product is taken if it gains so many times as much as a single choice.
PRODUCT_WEIGHT = 0.7
# One function of so many is held back from a fit, each of them once.
HELD_BACK = 10
# Relative errors from which on a sample counts less (Huber).
OUTLIER = 0.05
# Bytes below which an error counts as one of so many: the smallest functions are off by an instruction.
SMALLEST = 40


class CodeSample(Struct, frozen=True):
    """The own bytes of one function.

    Attributes:
        function: a number; samples of one specification have the same.
        column: index into `COLUMNS`.
        values: choices and, in columns of single layers, fields.
        fields: names of these that are fields.
        size: what was measured.
        whole: the bytes that errors are a part of.
    """

    function: int
    column: int
    values: Values
    fields: frozenset[str]
    size: int
    whole: int


Fit = dict[str, tuple[float, ...]]


class Terms(Struct, frozen=True):
    """Terms that may tell functions apart, and their values [samples, terms]; the first one is ``base``."""

    names: tuple[str, ...]
    values: Array


def find_terms(samples: Sequence[CodeSample]) -> Terms:
    """Return terms of single choices and fields, and products of two choices, each of other values."""
    fields = frozenset[str]().union(*(sample.fields for sample in samples))
    single: list[str] = []
    for name in dict.fromkeys(name for sample in samples for name in sample.values):
        held = [sample.values[name] for sample in samples if name in sample.values]
        different = list(dict.fromkeys(map(as_text, held)))
        if name in fields:
            single += [f"{name}={text}" for text in ("0", "1") if text in different]
            if all(isinstance(value, int) and 0 <= value <= LARGEST_FIELD for value in held):
                single += [f"{name}%{divisor}" for divisor in DIVISORS]
        elif len(different) > 1 or len(held) < len(samples):
            single += _terms_of(name, held, different)
    found: dict[bytes, tuple[str, Array]] = {}

    def add(name: str, column: Array) -> None:
        if column.min() != column.max():
            found.setdefault(column.tobytes(), (name, column))

    columns = {name: np.array([term(name)(sample.values) for sample in samples]) for name in single}
    places = np.array([sample.column for sample in samples])
    for name, column in columns.items():
        held = column[places == COLUMNS.index("alone-O2")]
        if name_of(name) not in fields or FEWEST_SAMPLES <= held.sum() <= len(held) - FEWEST_SAMPLES:
            add(name, column)
    choices = [name for name in single if name_of(name) not in fields]
    if len(choices) <= MOST_PAIRED:
        for one, other in combinations_with_replacement(choices, 2):
            add(f"{one}*{other}", columns[one] * columns[other])
    names, values = zip(*found.values(), strict=True) if found else ((), ())
    return Terms(("base", *names), np.column_stack([np.ones(len(samples)), *values]))


def name_of(text: str) -> str:
    """Return the choice or field of a term that is no product."""
    return re.split("[=%~]", text, maxsplit=1)[0].removesuffix(".count")


def _terms_of(name: str, held: Sequence[object], different: Sequence[str]) -> Iterator[str]:
    if all(isinstance(value, bool) for value in held):
        yield name
        return
    if all(isinstance(value, str) for value in held):
        if len(different) > FEW_VALUES or any(";" in text for text in different):
            yield f"{name}.count"
            words = dict.fromkeys(w for value in held for w in _WORDS.findall(as_text(value)))
            yield from (f"{name}~{word}" for word in words if not _NUMBERED.fullmatch(word))
            return
    else:
        yield name
        if any(isinstance(value, tuple) for value in held):
            yield f"{name}.count"
    if len(different) <= FEW_VALUES:
        yield from (f"{name}={text}" for text in different)


@dataclass
class _Column:
    """The samples of one column as equations: ``relative @ coefficients`` are about `wanted`."""

    relative: Array
    wanted: Array

    def __post_init__(self) -> None:
        self.basis = np.zeros((len(self.wanted), 0))
        self.rest = self.wanted
        self.take(0)

    def take(self, index: int) -> None:
        """Project a term out of all others and of what is left."""
        column = self.relative[:, index]
        column = column - self.basis @ (self.basis.T @ column)
        length = float(np.linalg.norm(column))
        if length > 1e-9 * float(np.linalg.norm(self.relative[:, index]) or 1.0):
            self.basis = np.column_stack([self.basis, column / length])
            self.rest = self.rest - self.basis[:, -1] * (self.basis[:, -1] @ self.rest)

    def gains(self) -> Array:
        """Return by how much each term would lower the squared errors."""
        if not len(self.wanted):
            return np.zeros(self.relative.shape[1])
        across = self.relative - self.basis @ (self.basis.T @ self.relative)
        lengths = np.einsum("ij,ij->j", across, across)
        whole = np.einsum("ij,ij->j", self.relative, self.relative)
        useful = lengths > 1e-6 * np.maximum(whole, 1e-30)
        return np.where(useful, (across.T @ self.rest) ** 2 / np.where(useful, lengths, 1.0), 0.0)


def fit(samples: Sequence[CodeSample], terms: Terms | None = None, *, complete: bool = False) -> Fit:
    """Return coefficients by terms, one for each of `COLUMNS`.

    Args:
        terms: those of the samples, if they are known.
        complete: there are no other functions, so that each may have a term of its own.
    """
    terms = terms or find_terms(samples)
    places = np.array([sample.column for sample in samples])
    whole = np.array([float(max(sample.whole, SMALLEST)) for sample in samples])
    relative = terms.values / whole[:, None]
    wanted = np.array([float(sample.size) for sample in samples]) / whole
    columns = [_Column(relative[places == i], wanted[places == i]) for i in range(len(COLUMNS))]
    weights = np.array([PRODUCT_WEIGHT if "*" in name else 1.0 for name in terms.names])
    chosen = [0]
    functions = len({sample.function for sample in samples})
    most = min(MOST_TERMS, functions - 1 if complete else int(functions / FUNCTIONS_PER_TERM))
    while len(chosen) <= most:
        squares = sum(float(c.rest @ c.rest) for c in columns)
        if squares <= EXACT**2 * len(samples):
            break
        gains = np.sum([c.gains() for c in columns], axis=0) * weights
        best = int(np.argmax(gains))
        if gains[best] <= (1 - (1 - GAIN) ** 2) * squares:
            break
        chosen.append(best)
        for column in columns:
            column.take(best)
    solved = [_solve(column.relative[:, chosen], column.wanted) for column in columns]
    return {terms.names[i]: tuple(float(s[k]) for s in solved) for k, i in enumerate(chosen)}


def factors(known: Mapping[str, Sequence[float]], samples: Sequence[CodeSample]) -> tuple[float, ...]:
    """Return by what factor most samples of each column differ from another core's estimates."""
    found: list[float] = []
    for column in range(len(COLUMNS)):
        own = [sample for sample in samples if sample.column == column and sample.size]
        ratios = [sample.size / max(_estimated(known, sample), 1.0) for sample in own]
        found.append(float(np.median(ratios)) if ratios else 1.0)
    return tuple(found)


def scaled(row: Sequence[float], by: Sequence[float]) -> tuple[float, ...]:
    """Return a row with each column by its factor."""
    return tuple(value * factor for value, factor in zip(row, by, strict=True))


def _solve(relative: Array, wanted: Array) -> Array:
    """Return coefficients: least squares in which outliers count less; of equal ones the smallest."""
    solution = np.zeros(relative.shape[1])
    if not wanted.any():
        return solution
    weights = np.ones(len(relative))
    lengths = np.linalg.norm(relative, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    for _ in range(8):
        roots = np.sqrt(weights)
        solution = np.linalg.lstsq(relative / scale * roots[:, None], roots * wanted, rcond=1e-9)[0]
        weights = OUTLIER / np.maximum(np.abs(relative / scale @ solution - wanted), OUTLIER)
    return solution / scale


class Limits(Struct, frozen=True):
    """The smallest and the largest sizes of samples by `COLUMNS`: no estimate goes beyond them."""

    least: tuple[float, ...]
    most: tuple[float, ...]


def limits(samples: Sequence[CodeSample]) -> Limits:
    sizes = [
        [float(s.size) for s in samples if s.column == column] or [0.0] for column in range(len(COLUMNS))
    ]
    return Limits(tuple(map(min, sizes)), tuple(map(max, sizes)))


def errors_of(
    known: Mapping[str, Sequence[float]], samples: Sequence[CodeSample], within: Limits | None = None
) -> Array:
    """Return by how much estimates are off, as a part of what was measured; with their sign.

    Parts are not among it: they only say which bytes of a function are there once.
    """
    judged = [sample for sample in samples if not COLUMNS[sample.column].startswith("parts")]
    within = within or limits(samples)
    return np.array(
        [
            (min(max(_estimated(known, s), within.least[s.column]), within.most[s.column]) - s.size)
            / max(s.whole, SMALLEST)
            for s in judged
        ]
    )


def _estimated(known: Mapping[str, Sequence[float]], sample: CodeSample) -> float:
    return sum(row[sample.column] * term(name)(sample.values) for name, row in known.items())


def held_back_errors(samples: Sequence[CodeSample]) -> Array:
    """Return how far estimates are off, each by a fit that has not seen its specification."""
    order = sorted({sample.function for sample in samples}, key=spread)
    turns = {function: place % HELD_BACK for place, function in enumerate(order)}
    places = np.array([turns[sample.function] for sample in samples])
    terms = find_terms(samples)
    found: list[Array] = []
    for turn in range(HELD_BACK):
        rest = [sample for sample, place in zip(samples, places, strict=True) if place != turn]
        own = [sample for sample, place in zip(samples, places, strict=True) if place == turn]
        known = fit(rest, Terms(terms.names, terms.values[places != turn]))
        found.append(errors_of(known, own, limits(rest)))
    return np.concatenate(found)
