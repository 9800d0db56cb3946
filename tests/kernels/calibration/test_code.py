"""The fit of code sizes, on made-up functions."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.code_rows import CodeFile, CodeRow, read_code_file
from microfold.kernels.cost.code_terms import term
from tests.kernels.calibration.code import write_code_file
from tests.kernels.calibration.code_fit import (
    COLUMNS,
    CodeSample,
    errors_of,
    factors,
    fit,
    held_back_errors,
    scaled,
)
from tests.kernels.calibration.code_programs import fit_around
from tests.kernels.calibration.code_sizes import read_listing


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("base", 1),
        ("unroll", 8),
        ("clamp", 1),
        ("absent", 0),
        ("taps", 6),
        ("taps.count", 3),
        ("kind=short", 1),
        ("kind=long", 0),
        ("unroll*taps.count", 24),
        ("unroll%4", 1),
        ("unroll%16", 0),
        ("lines~expf", 2),
        ("lines.count", 3),
        ("lines~^", 1),
        ("inner.rows=1", 1),
    ],
)
def test_terms_are_numbers_of_choices(text: str, value: float) -> None:
    values = {
        "unroll": 8,
        "clamp": True,
        "taps": (1, (2, 3)),
        "kind": "short",
        "lines": "a = expf(b);c = expf(a) * a;d",
        "inner.rows": 1,
    }
    assert term(text)(values) == value


def test_terms_without_a_form_are_refused() -> None:
    with pytest.raises(ValueError, match="must have a form of `code_terms`"):
        term("a+b")


def _samples() -> list[CodeSample]:
    """Return samples of unrolled loops, with more code where results are clamped."""
    samples: list[CodeSample] = []
    for number, (unroll, taps, clamp) in enumerate(product((1, 2, 4, 8), (1, 3, 5, 9), (False, True))):
        values = {"unroll": unroll, "taps": taps, "clamp": clamp, "kind": "short"}
        for column, name in enumerate(COLUMNS):
            part = 0.5 if name.startswith("parts") else 0.8 if name.startswith("alone") else 1.0
            own = round(part * (200 + 6 * unroll * taps + 40 * clamp))
            samples.append(CodeSample(number, column, values, frozenset(), own, max(own, 200)))
    return samples


def test_products_of_choices_are_found() -> None:
    samples = _samples()
    # No estimate is beyond what was measured, so the largest and the smallest function are not met.
    assert np.quantile(np.abs(held_back_errors(samples)), 0.8) < 0.02
    known = fit(samples)
    assert "unroll*taps" in known and "clamp" in known
    assert known["clamp"][0] == pytest.approx(40, abs=2)
    assert np.abs(errors_of(known, samples)).max() < 0.02


def test_few_functions_are_known_one_by_one() -> None:
    samples = [
        CodeSample(number, column, {"kind": kind}, frozenset(), size, size)
        for number, (kind, size) in enumerate((("a", 100), ("b", 260), ("c", 90)))
        for column in range(len(COLUMNS))
    ]
    assert np.abs(errors_of(fit(samples, complete=True), samples)).max() < 0.01


def test_another_core_is_a_factor_off() -> None:
    samples = _samples()
    other = {name: tuple(2 * value for value in row) for name, row in fit(samples).items()}
    by = factors(other, samples)
    assert by == pytest.approx((0.5,) * len(COLUMNS), rel=0.02)
    known = {name: scaled(row, by) for name, row in other.items()}
    assert np.abs(errors_of(known, samples)).max() < 0.02


def _file() -> CodeFile:
    columns = (100.0, 80.0, 30.0, 60.0, 50.0, 20.0)
    row = CodeRow(
        2,
        True,
        0.01,
        {"base": columns, "kind=short": columns},
        columns,
        (200.0, 160.0, 60.0, 120.0, 100.0, 40.0),
        {"mf_power": "kind=short"},
    )
    return CodeFile(
        "core",
        "a compiler",
        2,
        (0.0, 0.01),
        (0.0, 0.0),
        (20.0, 18.0),
        (27.5, 22.5),
        {"mf_power": (0, 22)},
        {"f": row},
    )


def test_data_files_are_read_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "core.toml"
    path.write_text(write_code_file(_file()), encoding="utf-8")
    found = read_code_file(path)
    assert dict(found.rows) == _file().rows
    assert write_code_file(found) == write_code_file(_file())


def test_estimates_count_helpers_and_merged_parts_once() -> None:
    call = KernelCall(CFunction("f.c.j2", "f", (("kind", "short"),)))
    normal, small = (_file().estimate(call, small=small) for small in (False, True))
    assert normal is not None and small is not None
    assert normal.alone == 160 and not normal.helpers
    assert small.alone == 100 - 40 and small.helpers == {"mf_power": 22, "f with kind=short": 40}
    assert _file().estimate(KernelCall(CFunction("g.c.j2", "g")), small=False) is None


def test_listings_give_sections_and_references() -> None:
    sizes, references = read_listing(
        """
  4 .text.f0      00000018  00000000  00000000  00000034  2**2  CONTENTS, ALLOC, LOAD, RELOC, READONLY, CODE
  5 .bss          00000004  00000000  00000000  00000034  2**2  ALLOC
RELOCATION RECORDS FOR [.text.f0]:
OFFSET   TYPE              VALUE
00000010 R_ARM_THM_CALL    mf_power.constprop.0
"""
    )
    assert sizes == {".text.f0": 24}
    assert references == {".text.f0": {"mf_power.constprop.0"}}


def test_around_calls_is_a_line() -> None:
    assert fit_around([(2, 70), (10, 270)]) == pytest.approx((20, 25))
