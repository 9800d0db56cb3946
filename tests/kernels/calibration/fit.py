"""Coefficients that fit samples: least squares of relative errors, none negative, outliers counting less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from microfold.kernels.cost.coefficients import LARGEST_ERROR, CostRow
from tests.kernels.calibration.measure import Sample, spread

Array = npt.NDArray[np.float64]

# Relative errors from which on a sample counts less (Huber).
OUTLIER = 0.1
# What a coefficient that is all wrong counts as, in relative errors of a sample.
BELIEF = 0.1
# Of fewer samples, no coefficients are taken.
FEWEST_SAMPLES = 6
# What nine of ten errors of a row that was counted by hand do not exceed.
LARGEST_TAIL = 0.35
# By how much its errors are smaller where a function for one layer has coefficients of its own.
NEARER = 0.01
# One layer of so many is held back from a fit, each of them once.
HELD_BACK = 3


class Problem(Struct, frozen=True):
    """Samples of one kernel as equations: counts [samples, terms] times coefficients, `others` besides, are
    about `wanted`.

    `weights` [samples] are how much each counts, 1 on average.
    """

    terms: tuple[str, ...]
    counts: Array
    others: Array
    wanted: Array
    weights: Array


def problem(samples: Sequence[Sample], *, cycles: bool = False) -> Problem:
    terms = tuple(dict.fromkeys(term for sample in samples for term in sample.terms))
    counts = np.array([[sample.terms.get(term, 0.0) for term in terms] for sample in samples], np.float64)
    wanted = np.array([sample.cycles if cycles else sample.instructions for sample in samples], np.float64)
    # Cycles decide, and the layers that take most of them decide about a network.
    weights = np.sqrt(wanted) if cycles else np.ones(len(wanted))
    others = np.array([sample.others[cycles] for sample in samples], np.float64)
    return Problem(terms, counts, others, wanted, weights / weights.mean())


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


def fit(equations: Problem, believed: Mapping[str, float] | None = None) -> Array:
    """Coefficients for the terms; 0 for those that never count.

    Args:
        believed: what parts are thought to take, which decides where samples do not: parts of a loop often
            grow together in all of them, and not in a layer that is larger than these.
    """
    relative = equations.counts / equations.wanted[:, None]
    # Columns of one length, so that large counts do not decide.
    lengths = np.linalg.norm(relative, axis=0)
    scaled = relative / np.where(lengths > 0, lengths, 1.0)
    about = np.array([(believed or {}).get(term, 0.0) for term in equations.terms]) * lengths
    beliefs = BELIEF * np.diag(np.where(about > 0, 1 / np.where(about > 0, about, 1.0), 0.0))
    expected = BELIEF * (about > 0)
    left = 1 - equations.others / equations.wanted
    weights = np.ones(len(relative))
    solution = np.zeros(relative.shape[1])
    for _ in range(20):
        roots = np.sqrt(weights * equations.weights)
        solution = non_negative(
            np.vstack([scaled * roots[:, None], beliefs]), np.concatenate([roots * left, expected])
        )
        errors = np.abs(scaled @ solution - left)
        weights = OUTLIER / np.maximum(errors, OUTLIER)
    return solution / np.where(lengths > 0, lengths, 1.0)


def errors_of(samples: Sequence[Sample], known: Mapping[str, float], *, cycles: bool = False) -> Array:
    """By how much estimates are off, as a part of what was measured."""
    equations = problem(samples, cycles=cycles)
    coefficients = np.array([known.get(term, 0.0) for term in equations.terms])
    return np.abs((equations.counts @ coefficients + equations.others) / equations.wanted - 1)


def held_back_errors(
    samples: Sequence[Sample], believed: Mapping[str, float] | None = None, *, cycles: bool = False
) -> Array:
    """How far estimates are off, each by a fit that has seen no variant of its layer.

    Args:
        believed: as for `fit`; from nothing that was measured.
    """
    layers = sorted({sample.layer for sample in samples}, key=spread)
    turns = {layer: place % HELD_BACK for place, layer in enumerate(layers)}
    found: list[float] = []
    for turn in range(HELD_BACK):
        rest = [sample for sample in samples if turns[sample.layer] != turn]
        own = [sample for sample in samples if turns[sample.layer] == turn]
        found += errors_of(own, _solved(rest, {}, believed, cycles=cycles), cycles=cycles).tolist()
    return np.array(found)


def stays(row: CostRow, samples: Sequence[Sample]) -> bool:
    """Whether a row was counted by hand, and well, or no fit does better.

    It tells siblings apart by what their code differs, and knows forms that few layers have.
    """
    if row.source != "by hand":
        return False
    errors = errors_of(samples, row.instructions)
    if float(np.median(errors)) > LARGEST_ERROR and _tail(errors) > _tail(held_back_errors(samples)):
        return False
    return _tail(errors) <= LARGEST_TAIL


def keep(row: CostRow, shared: Sequence[Sample], alone: Sequence[Sample]) -> CostRow:
    """A row as it was counted by hand, with its error and cycles.

    Where an instruction takes about as long in all parts, what by hand tells two kernels apart tells their
    cycles apart, too. Otherwise a fit is nearer.

    Args:
        shared, alone: as for `refit`.
    """
    # What was not counted takes nothing besides.
    nothing = dict.fromkeys((term for sample in shared for term in sample.terms), 0.0)
    known = {**nothing, **row.instructions}
    error = float(np.median(errors_of(shared, known)))
    own: Mapping[str, float] = {}
    own_cycles: Mapping[str, float] = {}
    if _suffice(alone):
        by_hand = _tail(errors_of(alone, known))
        if _tail(held_back_errors(alone, known)) < by_hand - NEARER:
            own, own_cycles = _alone(alone, known, known)
    note = row.note if error > LARGEST_ERROR else ""
    timed = shared if own else [*shared, *alone]
    cycles = _scaled(known, timed)
    cycle_errors = errors_of(timed, cycles, cycles=True)
    fitted = held_back_errors(timed, cycles, cycles=True)
    if _tail(fitted) < _tail(cycle_errors):
        cycles, cycle_errors = _solved(timed, cycles, cycles, cycles=True), fitted
    cycles_error = float(np.median(cycle_errors))
    return CostRow(
        row.core, row.source, len(shared), error, cycles_error, note, known, cycles, own, own_cycles
    )


def refit(
    row: CostRow,
    shared: Sequence[Sample],
    alone: Sequence[Sample],
    believed: Mapping[str, float] | None = None,
) -> CostRow:
    """The row with what samples say.

    Terms that no sample has stay as they are. Functions for one layer have coefficients of their own where
    these are nearer.

    Args:
        row: what is known so far.
        shared, alone: of its kernel, in functions for several layers and for one; at least three of the
            former.
        believed: instructions that were counted in the code; they are taken where layers that were held back
            are nearer then, or where the row is by hand: small layers do not tell its parts apart.
    """
    errors = held_back_errors(shared)
    if believed:
        with_beliefs = held_back_errors(shared, believed)
        if row.source == "by hand" or np.median(with_beliefs) < np.median(errors):
            errors = with_beliefs
        else:
            believed = None
    instructions = _solved(shared, row.instructions, believed)
    own: Mapping[str, float] = {}
    own_cycles: Mapping[str, float] = {}
    if alone:
        by_shared = _tail(errors_of(alone, instructions))
        if (
            by_shared > _tail(errors) + NEARER
            and _suffice(alone)
            and _tail(held_back_errors(alone, believed)) < by_shared - NEARER
        ):
            own, own_cycles = _alone(alone, instructions, believed)
        else:
            # Compilers make the same of them, or there are too few to tell.
            shared = [*shared, *alone]
            instructions = _solved(shared, row.instructions, believed)
            errors = held_back_errors(shared, believed)
    error = float(np.median(errors))
    scaled = _scaled(instructions, shared)
    cycles = _solved(shared, {**scaled, **row.cycles}, scaled, cycles=True)
    cycles_error = float(np.median(held_back_errors(shared, scaled, cycles=True)))
    note = row.note if error > LARGEST_ERROR else ""
    return CostRow(
        row.core, "measured", len(shared), error, cycles_error, note, instructions, cycles, own, own_cycles
    )


def _alone(
    samples: Sequence[Sample], known: Mapping[str, float], believed: Mapping[str, float] | None
) -> tuple[dict[str, float], dict[str, float]]:
    """Instructions and cycles of functions for one layer.

    Args:
        known: instructions of parts that no sample has.
    """
    instructions = _solved(samples, known, believed)
    scaled = _scaled(instructions, samples)
    return instructions, _solved(samples, scaled, scaled, cycles=True)


def _scaled(instructions: Mapping[str, float], samples: Sequence[Sample]) -> dict[str, float]:
    """Cycles of parts if an instruction takes as long in each as it does in most samples."""
    ratio = float(np.median([sample.cycles / sample.instructions for sample in samples]))
    return {name: value * ratio for name, value in instructions.items()}


def _suffice(samples: Sequence[Sample]) -> bool:
    """Whether they are enough for coefficients of their own: layers for each of them, and no few."""
    layers = {sample.layer for sample in samples}
    return len(layers) >= FEWEST_SAMPLES + len({term for sample in samples for term in sample.terms})


def _tail(errors: Array) -> float:
    """What nine of ten do not exceed: the median does not tell of forms that few layers have."""
    return float(np.quantile(errors, 0.9))


def _solved(
    samples: Sequence[Sample],
    known: Mapping[str, float],
    believed: Mapping[str, float] | None = None,
    *,
    cycles: bool = False,
) -> dict[str, float]:
    """Coefficients of all terms: fitted where samples have them, else what is known of them."""
    equations = problem(samples, cycles=cycles)
    found = dict(known)
    values = fit(equations, believed)
    for term, counts, value in zip(equations.terms, equations.counts.T, values, strict=True):
        if counts.any():
            found[term] = float(value)
    return found
