"""Coefficients that fit samples: least squares of relative errors, none negative, outliers counting less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from microfold.kernels.cost.coefficients import LARGEST_ERROR, Row
from tests.kernels.calibration.measure import Sample

Array = npt.NDArray[np.float64]

# Relative errors from which on a sample counts less (Huber).
OUTLIER = 0.1
# Rows that were counted by hand stay as long as their median error is no more, or a fit has a larger one.
# They know forms of layers that no sample has, and siblings differ by what their code differs.
GOOD_BY_HAND = LARGEST_ERROR
# One sample of so many is held back from a fit, each of them once.
HELD_BACK = 3


@dataclass(frozen=True)
class Problem:
    """Samples of one kernel as equations: counts [samples, terms] times coefficients are about `wanted`."""

    terms: tuple[str, ...]
    counts: Array
    wanted: Array


def problem(samples: Sequence[Sample], *, cycles: bool = False) -> Problem:
    terms = tuple(dict.fromkeys(term for sample in samples for term in sample.terms))
    counts = np.array([[sample.terms.get(term, 0.0) for term in terms] for sample in samples], np.float64)
    wanted = [sample.cycles if cycles else sample.instructions for sample in samples]
    return Problem(terms, counts, np.array(wanted, np.float64))


def non_negative(matrix: Array, right: Array) -> Array:
    """The solution of least squares with no negative element (Lawson and Hanson 1974, chapter 23)."""
    size = matrix.shape[1]
    solution, free = np.zeros(size), np.zeros(size, bool)
    scale = float(np.abs(matrix.T @ right).max(initial=0.0))
    for _ in range(10 * size):
        gradient = matrix.T @ (right - matrix @ solution)
        gradient[free] = -np.inf
        if free.all() or gradient.max() <= 1e-9 * scale:
            break
        free[int(np.argmax(gradient))] = True
        while True:
            trial = np.zeros(size)
            trial[free] = np.linalg.lstsq(matrix[:, free], right, rcond=None)[0]
            negative = free & (trial <= 0)
            if not negative.any():
                break
            step = np.min(solution[negative] / (solution[negative] - trial[negative]))
            solution = solution + step * (trial - solution)
            free &= solution > 1e-12
            solution[~free] = 0.0
        solution = trial
    return solution


def fit(equations: Problem) -> Array:
    """Coefficients for the terms; 0 for those that never count."""
    relative = equations.counts / equations.wanted[:, None]
    # Columns of one length, so that large counts do not decide.
    lengths = np.linalg.norm(relative, axis=0)
    scaled = relative / np.where(lengths > 0, lengths, 1.0)
    weights = np.ones(len(relative))
    solution = np.zeros(relative.shape[1])
    for _ in range(20):
        roots = np.sqrt(weights)
        solution = non_negative(scaled * roots[:, None], roots)
        errors = np.abs(scaled @ solution - 1)
        weights = OUTLIER / np.maximum(errors, OUTLIER)
    return solution / np.where(lengths > 0, lengths, 1.0)


def errors_of(samples: Sequence[Sample], known: Mapping[str, float], *, cycles: bool = False) -> Array:
    """By how much estimates are off, as a part of what was measured."""
    equations = problem(samples, cycles=cycles)
    coefficients = np.array([known.get(term, 0.0) for term in equations.terms])
    return np.abs(equations.counts @ coefficients / equations.wanted - 1)


def held_back_error(samples: Sequence[Sample]) -> float:
    """The median of how far estimates are off, each by a fit that has not seen its layer."""
    found: list[float] = []
    for turn in range(HELD_BACK):
        rest = [sample for i, sample in enumerate(samples) if i % HELD_BACK != turn]
        found += errors_of(samples[turn::HELD_BACK], _solved(rest, {})).tolist()
    return float(np.median(found))


def stays(row: Row, samples: Sequence[Sample]) -> bool:
    """Whether a row was counted by hand, and well."""
    if row.source != "by hand":
        return False
    return error_by_hand(row, samples) <= max(GOOD_BY_HAND, held_back_error(samples))


def error_by_hand(row: Row, samples: Sequence[Sample]) -> float:
    return float(np.median(errors_of(samples, row.instructions)))


def keep(row: Row, samples: Sequence[Sample]) -> Row:
    """A row as it was counted by hand, with its error."""
    # What was not counted takes nothing besides.
    nothing = dict.fromkeys((term for sample in samples for term in sample.terms), 0.0)
    known, cycles = {**nothing, **row.instructions}, {**nothing, **row.cycles}
    found = replace(row, instructions=known, cycles=cycles, samples=len(samples))
    return replace(found, error=error_by_hand(found, samples))


def waits(row: Row, samples: Sequence[Sample], timing: bool) -> Mapping[str, float]:
    """Cycles of a row by hand: its instructions times what they were measured to take."""
    ratio = float(np.median([sample.cycles / sample.instructions for sample in samples])) if timing else 1.0
    return {name: value * ratio for name, value in row.instructions.items()}


def refit(row: Row, samples: Sequence[Sample], alone: Sequence[Sample], timing: bool) -> Row:
    """The row with what samples say.

    Terms that no sample has stay as they are.

    Args:
        row: what is known so far.
        samples, alone: of its kernel, in functions for several layers and for one; at least three.
    """
    instructions = _solved(samples, row.instructions)
    cycles = _solved(samples, row.cycles, cycles=True) if timing else instructions
    own = _solved(alone, row.instructions) if alone else row.alone
    error = held_back_error(samples)
    return Row(row.core, "measured", len(samples), error, row.note, instructions, cycles, own)


def _solved(
    samples: Sequence[Sample], known: Mapping[str, float], *, cycles: bool = False
) -> dict[str, float]:
    equations = problem(samples, cycles=cycles)
    found = dict(known)
    for term, counts, value in zip(equations.terms, equations.counts.T, fit(equations), strict=True):
        if counts.any():
            found[term] = float(value)
    return found
