"""The page of what is compared with the wheels is what the tests run."""

from __future__ import annotations

import pytest

from microfold.frontend.operators import IMPORTERS
from tests.coverage_table import PAGE, REASONS, TFLM, collect, page

pytestmark = pytest.mark.slow  # they read all files that have goldens


def test_the_page_is_up_to_date() -> None:
    written, now = PAGE.read_text(encoding="utf-8").splitlines(), page().splitlines()
    assert [line for line in now if line not in written] == [], "run: python -m tests.coverage_table"
    assert len(written) == len(now)


def test_what_tflm_registers_is_compared_or_has_a_reason() -> None:
    assert [name for name in TFLM if name not in collect() and name not in REASONS] == []


def test_reasons_are_for_what_is_not_compared() -> None:
    assert not collect().keys() & REASONS.keys() - {"CALL"}
    assert REASONS.keys() <= {*TFLM, *IMPORTERS}
