"""Fitting of coefficients, and the data files it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.kernels.cost.coefficients import FOLDER, Core, CostRow, cores, read_core
from tests.kernels.calibration.__main__ import calibrate
from tests.kernels.calibration.data_file import write_core
from tests.kernels.calibration.fit import (
    errors_of,
    fit,
    held_back_errors,
    keep,
    non_negative,
    problem,
    refit,
)
from tests.kernels.calibration.measure import Sample
from tests.needs import CROSS_TOOLS

TERMS = {"call": 30.0, "row": 12.0, "tap": 4.5}


def _samples(count: int, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    found: list[Sample] = []
    for index in range(count):
        rows = int(rng.integers(1, 40))
        terms = {"call": 1.0, "row": float(rows), "tap": float(rows * rng.integers(1, 30)), "never": 0.0}
        needed = round(sum(TERMS.get(name, 0.0) * value for name, value in terms.items()))
        found.append(Sample("s8_max_pool2d__c", index, 0, terms, needed, 2 * needed, 5))
    return found


def test_what_is_linear_is_found() -> None:
    equations = problem(_samples(20))
    found = dict(zip(equations.terms, fit(equations), strict=True))
    assert found == pytest.approx({**TERMS, "never": 0.0}, rel=0.02)


def test_outliers_count_less() -> None:
    samples = _samples(30)
    odd = [replace(sample, instructions=3 * sample.instructions) for sample in samples[:3]]
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


def test_beliefs_decide_where_samples_do_not() -> None:
    # Rows and taps grow together: any two coefficients with this sum fit.
    samples = [
        Sample("s8_max_pool2d__c", size, 0, {"row": size, "tap": 3 * size}, 36 * size, 72 * size, 5)
        for size in range(1, 20)
    ]
    equations = problem(samples)
    for row, tap in ((12, 8), (3, 11), (30, 2)):
        found = dict(zip(equations.terms, fit(equations, {"row": row, "tap": tap}), strict=True))
        assert found == pytest.approx({"row": row, "tap": tap}, rel=0.01)


def test_all_variants_of_a_layer_are_held_back_together() -> None:
    # What a layer takes tells nothing of others; its variants take the same.
    rng = np.random.default_rng(0)
    samples: list[Sample] = []
    for layer in range(30):
        needed = int(rng.integers(100, 10_000))
        terms = {"call": 1.0, f"layer{layer}": 1.0}
        samples += [Sample("s8_max_pool2d__c", layer, i, terms, needed, needed, 5) for i in range(4)]
    assert np.median(held_back_errors(samples)) > 0.5


def test_what_others_take_is_not_fitted() -> None:
    """A kernel may hand a large part of a layer to another one, whose cycles are known."""
    samples = [
        replace(s, instructions=s.instructions + 5000, cycles=s.cycles + 7000, others=(5000.0, 7000.0))
        for s in _samples(20)
    ]
    found = refit(CostRow("cortex-m4", "measured", 0, None, None, "", {}, {}), samples, [])
    assert found.instructions["tap"] == pytest.approx(TERMS["tap"], rel=0.05)
    assert found.cycles["tap"] == pytest.approx(2 * TERMS["tap"], rel=0.05)
    assert np.max(errors_of(samples, found.cycles, cycles=True)) < 0.01


def test_refitted_rows() -> None:
    known = {name: 3 * value for name, value in TERMS.items()} | {"never": 7.0}
    cycles = {name: 2 * value for name, value in known.items()}
    row = CostRow("cortex-m4", "by hand", 0, None, None, "", known, cycles)
    found = refit(row, _samples(20), [])
    assert found.source == "measured"
    assert found.instructions == pytest.approx({**TERMS, "never": 7.0}, rel=0.02)
    assert found.cycles["tap"] == pytest.approx(2 * TERMS["tap"], rel=0.02)
    assert found.error is not None and found.error < 0.01
    assert found.cycles_error is not None and found.cycles_error < 0.01
    # Once more, nearly nothing changes.
    again = refit(found, _samples(20), [])
    assert again.instructions == pytest.approx(found.instructions, rel=1e-2)


def test_cycles_of_rows_by_hand_are_those_of_instructions_where_no_fit_is_nearer() -> None:
    row = CostRow("cortex-m4", "by hand", 0, None, None, "", TERMS, {})
    found = keep(row, _samples(20), [])
    assert found.instructions == {**TERMS, "never": 0.0}
    assert found.cycles == pytest.approx({**{name: 2 * value for name, value in TERMS.items()}, "never": 0.0})
    # Rows wait, taps do not.
    waits = [replace(s, cycles=s.instructions + round(48 * s.terms["row"])) for s in _samples(20)]
    found = keep(row, waits, [])
    assert found.cycles["row"] == pytest.approx(60.0, rel=0.05)
    assert found.cycles["tap"] == pytest.approx(TERMS["tap"], rel=0.05)
    assert found.cycles_error is not None and found.cycles_error < 0.01


def test_functions_for_one_layer_have_coefficients_of_their_own_where_these_are_nearer() -> None:
    shared, faster = _samples(20), [replace(s, instructions=s.instructions // 2) for s in _samples(20, 1)]
    row = CostRow("cortex-m4", "measured", 0, None, None, "", {}, {})
    assert refit(row, shared, faster).alone["tap"] == pytest.approx(TERMS["tap"] / 2, rel=0.05)
    assert not refit(row, shared, shared).alone


@pytest.mark.needs(*CROSS_TOOLS)
def test_kernels_that_differ_in_weights_of_float16_have_one_fit() -> None:
    plain, halves = "f32_conv2d__fpu_4x4", "f32_f16w_conv2d__fpu_4x4"
    loaded = target.load("cortex-m4")
    core = Core("cortex-m4", loaded.features, "", "", 1.0, {})
    own = [replace(sample, kernel=plain) for sample in _samples(20)]
    other = [
        # What these take is not quite the same.
        replace(s, kernel=halves, terms={**s.terms, "converted": 40.0}, cycles=round(2.1 * s.cycles))
        for s in _samples(20, 1)
    ]
    rows = calibrate(core, loaded, [*own, *other], []).rows
    assert rows[plain].cycles == {k: v for k, v in rows[halves].cycles.items() if k != "converted"}
    assert "converted" in rows[halves].cycles
    assert calibrate(core, loaded, own, []).rows[plain].cycles != rows[plain].cycles


@pytest.mark.parametrize("name", [core.name for core in cores()])
def test_data_files_are_as_they_are_written(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.toml"
    text = path.read_text(encoding="utf-8")
    core = read_core(path)
    assert write_core(core) == text
    copy = tmp_path / path.name
    copy.write_text(text, encoding="utf-8")
    assert read_core(copy) == core
