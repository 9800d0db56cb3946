"""Calibration of code sizes: measure the functions of a core's kernels, fit terms, and write the data file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from microfold.kernels.cost.code_rows import FOLDER, CodeFile, CodeRow, Levels
from microfold.kernels.cost.code_terms import term
from microfold.support.tools import run_tool
from microfold.target import Target
from tests.kernels.calibration.code_cases import code_cases
from tests.kernels.calibration.code_fit import (
    COLUMNS,
    CodeSample,
    Fit,
    candidates,
    errors_of,
    fit,
    held_back_errors,
)
from tests.kernels.calibration.code_sizes import CodeCase, CodeSize, alone_sizes, shared_sizes
from tests.kernels.calibration.data_file import number
from tests.kernels.calibration.layers import layers

LEVELS = ("-O2", "-Os")
# Functions of a kernel from which on some are held back; of fewer all are known.
FEWEST_FUNCTIONS = 6
HEAD = """\
# Bytes of code of kernel functions on this core, see microfold/kernels/cost/code_rows.py.
# Written by `python -m tests.kernels.calibration --code`.
"""

# The sizes of each of `COLUMNS`.
Measured = Mapping[str, Sequence[CodeSize]]


def measure_code(target: Target, wanted: str = "") -> dict[str, list[CodeSize]]:
    """Return the sizes of all functions of a core's kernels, by `COLUMNS`."""
    graphs = layers()
    found: dict[str, list[CodeSize]] = {}
    for level in LEVELS:
        cases: Sequence[CodeCase] = code_cases(graphs, target, small=level == "-Os", wanted=wanted)
        found[f"shared{level}"] = shared_sizes(cases, target, level)
        found[f"alone{level}"] = alone_sizes(cases, target, level)
    return found


def samples_of(measured: Measured) -> dict[str, list[CodeSample]]:
    """Return samples by the names of functions."""
    found: dict[str, list[CodeSample]] = defaultdict(list)
    numbers: dict[object, int] = {}
    for column, name in enumerate(COLUMNS):
        for size in measured[name]:
            function, spec = size.call.function, dict(size.call.function.spec)
            key = numbers.setdefault((function.name, function.spec), len(numbers))
            # What a layer holds says nothing of a function that others call, too.
            values = {**size.call.parameters, **spec} if column % 2 else spec
            sample = CodeSample(key, column, values, frozenset(values.keys() - spec.keys()), size.own)
            found[function.name].append(sample)
    return found


def helper_sizes(measured: Measured) -> dict[str, Levels]:
    """Return the bytes of helper functions at each level: those that they have in most files."""
    found: dict[str, list[float]] = {}
    for place, level in enumerate(LEVELS):
        sizes: dict[str, Counter[int]] = defaultdict(Counter)
        for size in (*measured[f"shared{level}"], *measured[f"alone{level}"]):
            for name, own in size.helpers.items():
                sizes[name][own] += 1
        for name, counted in sizes.items():
            found.setdefault(name, [0.0, 0.0])[place] = float(counted.most_common(1)[0][0])
    return {name: (levels[0], levels[1]) for name, levels in sorted(found.items())}


def helper_terms(sizes: Sequence[CodeSize], samples: Sequence[CodeSample]) -> dict[str, str]:
    """Return for each helper that functions of one name call the term that tells best which of them do."""
    names = dict.fromkeys(name for size in sizes for name in size.helpers)
    values = [dict(size.call.function.spec) for size in sizes]
    terms = ["base", *(each for each in candidates(samples) if not _is_of_fields(each, values))]
    found: dict[str, str] = {}
    for name in sorted(names):
        # A level at which no function calls it keeps its bytes at 0.
        calls = np.array([name in size.helpers for size in sizes])
        wrong = [int(np.sum(np.array([term(t)(v) != 0 for v in values]) != calls)) for t in terms]
        found[name] = terms[int(np.argmin(wrong))]
    return found


def _is_of_fields(text: str, values: Iterable[Mapping[str, object]]) -> bool:
    name = text.split("*")[0].partition("=")[0].partition("~")[0].removesuffix(".count")
    return not any(name in each for each in values)


def calibrate_code(
    name: str, target: Target, measured: Measured, program: Levels, call: Levels, pointer: Levels
) -> CodeFile:
    """Return the data file of a core.

    Args:
        program, call, pointer: see `CodeFile`.
    """
    rows: dict[str, CodeRow] = {}
    all_errors: list[float] = []
    for function, samples in sorted(samples_of(measured).items()):
        # The levels may differ in which helpers they call; only where both know a helper they must agree.
        sizes = [size for column in measured.values() for size in column if size.call.function.name == function]
        known = fit(samples)
        count = len({sample.function for sample in samples})
        error = None
        if count >= FEWEST_FUNCTIONS:
            errors = np.abs(held_back_errors(samples))
            all_errors += errors.tolist()
            error = float(np.quantile(errors, 0.9))
        rows[function] = CodeRow(count, error, _columns(known), _helpers_at_levels(sizes, samples, measured))
    version = run_tool([target.compiler, "--version"], Path.cwd(), 10.0, "asking for its version").stdout
    made = f"{version.splitlines()[0]}, {' '.join(target.cpu_flags)}"
    return CodeFile(
        name,
        made,
        sum(row.functions for row in rows.values()),
        float(np.median(all_errors)),
        float(np.quantile(all_errors, 0.9)),
        program,
        call,
        pointer,
        helper_sizes(measured),
        rows,
    )


def _columns(known: Fit) -> dict[str, tuple[float, float, float, float]]:
    return {name: (row[0], row[1], row[2], row[3]) for name, row in known.items()}
