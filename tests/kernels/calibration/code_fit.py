"""Terms and coefficients that fit measured code sizes: terms are taken one after the other, the best first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from microfold.kernels.cost.code_terms import Values, as_text, term
from tests.kernels.calibration.measure import spread

Array = npt.NDArray[np.float64]

# Columns of a data file: own code of a shared function and of one for its only layer, at -O2, then at -Os.
COLUMNS = ("shared-O2", "alone-O2", "shared-Os", "alone-Os")
# Different values of a choice up to which each may have a term of its own.
FEW_VALUES = 12
# Terms of one kernel, besides its base; and functions for each of them.
MOST_TERMS = 12
FUNCTIONS_PER_TERM = 2.5
# A term is taken if the root mean square of relative errors falls by such a part of it.
GAIN = 0.06
# Below this root mean square of relative errors, no more terms are taken.
EXACT = 0.012
# A product is taken if it gains so many times as much as a single choice.
PRODUCT_WEIGHT = 0.7
# One function of so many is held back from a fit, each of them once.
HELD_BACK = 5
# Bytes below which an error counts as one of so many: the smallest functions are off by an instruction.
SMALLEST = 40


@dataclass(frozen=True)
class CodeSample:
    """The own bytes of one function.

    Attributes:
        function: a number; samples of one specification have the same.
        column: index into `COLUMNS`.
        values: choices and, in columns of single layers, fields.
        fields: names of these that are fields.
    """

    function: int
    column: int
    values: Values
    fields: frozenset[str]
    size: int


Fit = dict[str, tuple[float, ...]]


def candidates(samples: Sequence[CodeSample]) -> list[str]:
    """Return the terms that may tell functions apart, each of them once."""
    single: list[str] = []
    fields = frozenset[str]().union(*(sample.fields for sample in samples))
    names = dict.fromkeys(name for sample in samples for name in sample.values)
    for name in names:
        held = [sample.values[name] for sample in samples if name in sample.values]
        different = list(dict.fromkeys(map(as_text, held)))
        if len(different) < 2 and len(held) == len(samples):
            continue
        if name in fields:
            single += [f"{name}={text}" for text in ("0", "1") if text in different]
        else:
            single += _terms_of(name, held, different)
    alone = {name for name in single if name.partition("=")[0] in fields}
    spec = [name for name in single if name not in alone]
    columns: dict[bytes, str] = {}
    pairs = [f"{a}*{b}" for a, b in combinations(spec, 2)] if len(spec) <= 60 else []
    numeric = [name for name in spec if "=" not in name and "~" not in name]
    for name in [*single, *pairs, *(f"{name}*{name}" for name in numeric)]:
        column = np.array([_value(name, sample) for sample in samples])
        if column.any() and column.min() != column.max():
            columns.setdefault(column.tobytes(), name)
    return list(columns.values())


def _terms_of(name: str, held: Sequence[object], different: Sequence[str]) -> Iterator[str]:
    if all(isinstance(value, bool) for value in held):
        yield name
        return
    if all(isinstance(value, str) for value in held):
        if len(different) > FEW_VALUES or any(";" in text for text in different):
            yield f"{name}.count"
            words = dict.fromkeys(w for value in held for w in re.findall(r"[\w.]+", str(value)))
            yield from (f"{name}~{word}" for word in words if not re.match(r"[\d.]|[a-z]+\d+$", word))
            return
    else:
        yield name
        if any(isinstance(value, tuple) for value in held):
            yield f"{name}.count"
    if len(different) <= FEW_VALUES:
        yield from (f"{name}={text}" for text in different)


def _value(text: str, sample: CodeSample) -> float:
    """Return the value of a term: fields say nothing of functions that several layers call."""
    return term(text)(sample.values)


@dataclass
class _Column:
    """The samples of one column as equations: relative errors of ``values @ coefficients`` from 1."""

    values: Array
    sizes: Array

    def __post_init__(self) -> None:
        self.relative = self.values / self.sizes[:, None]
        self.basis = np.zeros((len(self.sizes), 0))
        self.rest = np.ones(len(self.sizes))
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
        if not len(self.sizes):
            return np.zeros(self.relative.shape[1])
        across = self.relative - self.basis @ (self.basis.T @ self.relative)
        lengths = np.einsum("ij,ij->j", across, across)
        whole = np.einsum("ij,ij->j", self.relative, self.relative)
        useful = lengths > 1e-6 * np.maximum(whole, 1e-30)
        return np.where(useful, (across.T @ self.rest) ** 2 / np.where(useful, lengths, 1.0), 0.0)


def fit(samples: Sequence[CodeSample]) -> Fit:
    """Return coefficients by terms, one for each of `COLUMNS`."""
    names = ["base", *candidates(samples)]
    columns = []
    for index in range(len(COLUMNS)):
        own = [sample for sample in samples if sample.column == index]
        values = np.array([[_value(name, s) for name in names] for s in own]).reshape(len(own), len(names))
        columns.append(_Column(values, np.array([float(max(s.size, 1)) for s in own])))
    weights = np.array([PRODUCT_WEIGHT if "*" in name else 1.0 for name in names])
    chosen = [0]
    functions = len({sample.function for sample in samples})
    most = min(MOST_TERMS, max(1, int(functions / FUNCTIONS_PER_TERM)) if functions > 5 else functions + 2)
    while len(chosen) <= most:
        squares = sum(float(c.rest @ c.rest) for c in columns)
        if squares <= EXACT**2 * sum(len(c.sizes) for c in columns):
            break
        gains = np.sum([c.gains() for c in columns], axis=0) * weights
        best = int(np.argmax(gains))
        if gains[best] <= (1 - (1 - GAIN) ** 2) * squares:
            break
        chosen.append(best)
        for column in columns:
            column.take(best)
    solved = [_solve(column.relative[:, chosen]) for column in columns]
    return {names[i]: tuple(float(s[k]) for s in solved) for k, i in enumerate(chosen)}


def _solve(relative: Array) -> Array:
    """Return coefficients: least squares in which outliers count less; of equal ones the smallest."""
    if not len(relative):
        return np.zeros(relative.shape[1])
    weights = np.ones(len(relative))
    solution = np.zeros(relative.shape[1])
    lengths = np.linalg.norm(relative, axis=0)
    scaled = relative / np.where(lengths > 0, lengths, 1.0)
    for _ in range(8):
        roots = np.sqrt(weights)
        solution = np.linalg.lstsq(scaled * roots[:, None], roots, rcond=1e-9)[0]
        weights = 0.05 / np.maximum(np.abs(scaled @ solution - 1), 0.05)
    return solution / np.where(lengths > 0, lengths, 1.0)


def estimated(known: Mapping[str, Sequence[float]], sample: CodeSample) -> float:
    return sum(row[sample.column] * _value(name, sample) for name, row in known.items())


def errors_of(known: Mapping[str, Sequence[float]], samples: Sequence[CodeSample]) -> Array:
    """Return by how much estimates are off, as a part of what was measured; with their sign."""
    return np.array([(estimated(known, s) - s.size) / max(s.size, SMALLEST) for s in samples])


def held_back_errors(samples: Sequence[CodeSample]) -> Array:
    """Return how far estimates are off, each by a fit that has not seen its specification."""
    order = sorted({sample.function for sample in samples}, key=spread)
    turns = {function: place % HELD_BACK for place, function in enumerate(order)}
    found: list[Array] = []
    for turn in range(HELD_BACK):
        own = [sample for sample in samples if turns[sample.function] == turn]
        if own:
            found.append(errors_of(fit([s for s in samples if turns[s.function] != turn]), own))
    return np.concatenate(found)
