"""Calibration of code sizes: measures functions of a core's kernels, fits terms, writes the data file."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from microfold.kernels.cost.code_rows import FOLDER, CodeFile, CodeRow, Columns, Levels, code_files
from microfold.kernels.cost.code_terms import Values, term
from microfold.options import OPTIMIZE
from microfold.support.tools import run_tool
from microfold.target import Target
from tests.kernels.calibration.code_cases import MOST_FUNCTIONS, code_cases
from tests.kernels.calibration.code_fit import (
    COLUMNS,
    CodeSample,
    Limits,
    errors_of,
    factors,
    find_terms,
    fit,
    held_back_errors,
    limits,
    name_of,
    scaled,
)
from tests.kernels.calibration.code_programs import ProgramCode, around_code, fit_around, program_code
from tests.kernels.calibration.code_sizes import CodeCase, CodeSize, alone_sizes, shared_sizes
from tests.kernels.calibration.data_file import number
from tests.kernels.calibration.layers import layers

LEVELS = ("-O2", "-Os")
# Models whose run functions tell what a call takes.
EXAMPLES = sorted(Path("examples").glob("*/*.tflite"))
HEAD = """\
# Bytes of code of kernel functions on this core, see microfold/kernels/cost/code_rows.py.
# Written by `python -m tests.kernels.calibration --code`.
"""

# Sizes of functions for all layers and of ones for one layer, by ``shared`` or ``alone`` and the level.
Measured = Mapping[str, Sequence[CodeSize]]


def measure_code(target: Target, most: int, wanted: str = "") -> dict[str, list[CodeSize]]:
    """Return the sizes of functions of a core's kernels; at most so many of one name."""
    graphs = layers()
    found: dict[str, list[CodeSize]] = {}
    for level in LEVELS:
        cases: Sequence[CodeCase] = code_cases(graphs, target, small=level == "-Os", most=most, wanted=wanted)
        found[f"shared{level}"] = shared_sizes(cases, target, level)
        found[f"alone{level}"] = alone_sizes(cases, target, level)
    return found


def samples_of(measured: Measured) -> dict[str, list[CodeSample]]:
    """Return samples by the names of functions."""
    found: dict[str, list[CodeSample]] = defaultdict(list)
    numbers: dict[object, int] = {}

    def add(column: str, size: CodeSize, own: int, values: Values) -> None:
        function, spec = size.call.function, dict(size.call.function.spec)
        key = numbers.setdefault((function.name, function.spec), len(numbers))
        fields = frozenset(values.keys() - spec.keys())
        found[function.name].append(
            CodeSample(key, COLUMNS.index(column), values, fields, own, max(size.own, own))
        )

    for level in LEVELS:
        for size in measured[f"shared{level}"]:
            # What a layer holds says nothing of a function that others call, too.
            add(f"shared{level}", size, size.own, dict(size.call.function.spec))
        for size in measured[f"alone{level}"]:
            spec = dict(size.call.function.spec)
            add(f"alone{level}", size, size.own, {**size.call.parameters, **spec})
            add(f"parts{level}", size, size.parts, spec)
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


def helper_terms(measured: Measured, function: str, samples: Sequence[CodeSample]) -> dict[str, str]:
    """Return for each helper that functions of a name call the term that tells best which of them do.

    Only levels of optimisation count at which the helper is kept apart.
    """
    calls: dict[str, list[tuple[Values, bool]]] = defaultdict(list)
    for level in LEVELS:
        sizes = [
            size
            for size in (*measured[f"shared{level}"], *measured[f"alone{level}"])
            if size.call.function.name == function
        ]
        for name in {name for size in sizes for name in size.helpers}:
            calls[name] += [(dict(size.call.function.spec), name in size.helpers) for size in sizes]
    fields = {field for sample in samples for field in sample.fields}
    terms = [name for name in find_terms(samples).names if name_of(name) not in fields]
    return {name: _condition(terms, calls[name]) for name in sorted(calls)}


def _condition(terms: Sequence[str], calls: Sequence[tuple[Values, bool]]) -> str:
    def wrong(text: str) -> int:
        of_term = term(text)
        return sum((of_term(values) != 0) != called for values, called in calls)

    return min(terms, key=wrong)


def around_of(target: Target) -> tuple[Levels, Levels]:
    """Return `CodeFile.program` and `CodeFile.call`, as the examples' models have them."""
    normal, small = (
        fit_around([around_code(path, target, level) for path in EXAMPLES]) for level in ("balanced", "size")
    )
    return (normal[0], small[0]), (normal[1], small[1])


def run(target: Target, models: Sequence[Path], like: str) -> None:
    """Measure a core's code sizes and write its data file; with models, compare estimates with their code.

    Args:
        like: a core whose terms, by a factor, may be nearer; of it a quarter of the functions suffices.
    """
    for path in models:
        for level in OPTIMIZE:
            show(program_code(path, target, level))
    if not models:
        most = MOST_FUNCTIONS // 4 if like else MOST_FUNCTIONS
        measured, other = measure_code(target, most), code_files().get(like)
        text = write_code_file(calibrate_code(target, measured, around_of(target), most, other))
        (FOLDER / f"{target.name}.toml").write_text(text, encoding="utf-8")


def show(found: ProgramCode) -> None:
    """Print the bytes of a program's code, estimated and measured, their ratio, and that of its kernels."""
    print(
        f"{found.name:28s} {found.level:8s} {found.estimated:7,} {found.measured:7,} "
        f"{found.estimated / found.measured:6.3f}  kernels {found.estimated_kernels / found.kernels:6.3f}"
    )


def calibrate_code(
    target: Target, measured: Measured, around: tuple[Levels, Levels], most: int, like: CodeFile | None = None
) -> CodeFile:
    """Return the data file of a core.

    Args:
        around: `CodeFile.program` and `CodeFile.call`.
        most: functions of one name that were measured at most; of fewer, all are known.
        like: the file of a core of which more functions were measured.
    """
    rows: dict[str, CodeRow] = {}
    known, held_back = list[float](), list[float]()
    for name, samples in sorted(samples_of(measured).items()):
        code, within, errors, complete = _row(
            samples, most, like.rows.get(name) if like is not None else None
        )
        (known if complete else held_back).extend(errors)
        functions = len({sample.function for sample in samples})
        error = float(np.quantile(errors, 0.9))
        rows[name] = CodeRow(
            functions,
            complete,
            error,
            code,
            _columns(within.least),
            _columns(within.most),
            helper_terms(measured, name, samples),
        )
    version = run_tool([target.compiler, "--version"], Path.cwd(), 10.0, "asking for its version").stdout
    return CodeFile(
        target.name,
        f"{version.splitlines()[0]}, {' '.join(target.cpu_flags)}",
        sum(row.functions for row in rows.values()),
        _errors(known),
        _errors(held_back),
        *around,
        helper_sizes(measured),
        rows,
    )


def _row(
    samples: Sequence[CodeSample], most: int, like: CodeRow | None
) -> tuple[dict[str, Columns], Limits, list[float], bool]:
    """Return the terms of functions with one name, their limits, how far off they are, and if all are known.

    Errors are those of the fit where all functions are known, else of functions that were held back from it.
    The terms of another core, by a factor, are taken where these are nearer.
    """
    counts = [len({s.function for s in samples if s.column == column}) for column in range(len(COLUMNS))]
    complete = max(counts) < most
    found, within = fit(samples, complete=complete), limits(samples)
    errors = np.abs(errors_of(found, samples) if complete else held_back_errors(samples))
    if like is not None and not complete:
        by = factors(like.code, samples)
        other = {name: scaled(row, by) for name, row in like.code.items()}
        within = Limits(
            tuple(map(min, within.least, scaled(like.least, by))),
            tuple(map(max, within.most, scaled(like.most, by))),
        )
        by_other = np.abs(errors_of(other, samples, within))
        # The other core's terms may have been fitted to the same functions: its own error is the least.
        by_other *= max(1.0, like.error / max(float(np.quantile(by_other, 0.9)), 1e-3))
        if np.quantile(by_other, 0.9) < np.quantile(errors, 0.9):
            found, errors = other, by_other
    return {text: _columns(row) for text, row in found.items()}, within, errors.tolist(), complete


def _columns(row: Sequence[float]) -> Columns:
    return row[0], row[1], row[2], row[3], row[4], row[5]


def _errors(errors: Sequence[float]) -> Levels:
    return (float(np.median(errors)), float(np.quantile(errors, 0.9))) if errors else (0.0, 0.0)


def write_code_file(file: CodeFile) -> str:
    """Return the text of a data file."""
    lines = [HEAD, "[core]", f'provenance = "{file.provenance}"', f"functions = {file.functions}"]
    for name, errors in (("known_errors", file.known_errors), ("held_back_errors", file.held_back_errors)):
        lines.append(f"{name} = [{errors[0]:.3f}, {errors[1]:.3f}]")
    for name, levels in (("program", file.program), ("call", file.call)):
        lines.append(f"{name} = {_list(levels)}")
    lines += [f"helpers.{name} = {_list(levels)}" for name, levels in file.helpers.items()]
    for name, row in sorted(file.rows.items()):
        lines += ["", f"[{name}]", f"functions = {row.functions}"]
        lines.append(f"{'error' if row.complete else 'held_back_error'} = {row.error:.3f}")
        lines += [f"code.{_key(text)} = {_list(columns)}" for text, columns in row.code.items()]
        if len(row.code) > 1:
            lines += [f"least = {_list(row.least)}", f"most = {_list(row.most)}"]
        lines += [f"helpers.{helper} = {json.dumps(text)}" for helper, text in row.helpers.items()]
    return "\n".join(lines) + "\n"


def _list(values: Sequence[float]) -> str:
    return f"[{', '.join(number(value) for value in values)}]"


def _key(text: str) -> str:
    return text if text.replace("_", "").isalnum() else json.dumps(text, ensure_ascii=False)
