"""Fitting of coefficients, and the data files it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from microfold.kernels.cost.coefficients import FOLDER, Row, cores, read_core
from tests.kernels.calibration.data_file import write_core
from tests.kernels.calibration.fit import GOOD_BY_HAND, fit, keep, non_negative, problem, refit, stays, waits
from tests.kernels.calibration.measure import Sample

TERMS = {"call": 30.0, "row": 12.0, "tap": 4.5}


def _samples(count: int, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    found: list[Sample] = []
    for index in range(count):
        rows = int(rng.integers(1, 40))
        terms = {"call": 1.0, "row": float(rows), "tap": float(rows * rng.integers(1, 30)), "never": 0.0}
        needed = round(sum(TERMS.get(name, 0.0) * value for name, value in terms.items()))
        found.append(Sample("s8_max_pool2d__c", index, 0, terms, needed, 2 * needed))
    return found


def test_what_is_linear_is_found() -> None:
    equations = problem(_samples(20))
    found = dict(zip(equations.terms, fit(equations), strict=True))
    assert found == pytest.approx({**TERMS, "never": 0.0}, rel=0.02)


def test_outliers_count_less() -> None:
    samples = _samples(30)
    odd = [Sample(s.kernel, s.layer, 0, s.terms, 3 * s.instructions, s.cycles) for s in samples[:3]]
    equations = problem([*odd, *samples[3:]])
    found = dict(zip(equations.terms, fit(equations), strict=True))
    assert found["tap"] == pytest.approx(TERMS["tap"], rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_negative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, right = rng.random((12, 5)), rng.normal(size=12)
    solution = non_negative(matrix, right)
    gradient = matrix.T @ (right - matrix @ solution)
    # The conditions of Kuhn and Tucker.
    assert solution.min() >= 0
    assert np.all(gradient <= 1e-6)
    assert np.abs(gradient[solution > 0]).max(initial=0.0) < 1e-6


def _row(source: str, scale: float) -> Row:
    known = {name: value * scale for name, value in TERMS.items()} | {"never": 7.0}
    return Row("cortex-m4", source, 0, None, "", known, {name: 2 * value for name, value in known.items()})


@pytest.mark.parametrize(("off", "kept"), [(0.9 * GOOD_BY_HAND, True), (1.1 * GOOD_BY_HAND, False)])
def test_what_was_counted_by_hand_stays_while_it_is_good(off: float, kept: bool) -> None:
    row, samples = _row("by hand", 1 + off), _samples(20)
    assert stays(row, samples) == kept
    found = keep(row, samples)
    assert found.source == "by hand" and found.samples == 20
    assert found.error == pytest.approx(off, rel=0.1)
    assert found.instructions == row.instructions
    # Twice the instructions, as measured.
    assert waits(found, samples, timing=True)["tap"] == pytest.approx(2 * found.instructions["tap"])


def test_refitted_rows() -> None:
    found = refit(_row("measured", 3.0), _samples(20), [], timing=True)
    assert found.instructions == pytest.approx({**TERMS, "never": 7.0}, rel=0.02)
    assert found.cycles["tap"] == pytest.approx(2 * TERMS["tap"], rel=0.02)
    assert found.error is not None and found.error < 0.01
    # Once more, nothing changes.
    assert refit(found, _samples(20), [], timing=True) == found


@pytest.mark.parametrize("name", [core.name for core in cores()])
def test_data_files_are_as_they_are_written(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.toml"
    text = path.read_text(encoding="utf-8")
    core = read_core(path)
    assert write_core(core) == text
    copy = tmp_path / path.name
    copy.write_text(text, encoding="utf-8")
    assert read_core(copy) == core
