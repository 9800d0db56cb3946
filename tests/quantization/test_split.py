"""Calibration data and held-back data."""

from __future__ import annotations

import pytest

from microfold.errors import InputError
from microfold.quantization.split import split


def test_parts_do_not_overlap_and_depend_on_the_seed() -> None:
    found = split(1000, 100, 50, 7)
    assert (len(found.calibration), len(found.held_back)) == (100, 50)
    assert not set(found.calibration) & set(found.held_back)
    assert found == split(1000, 100, 50, 7) != split(1000, 100, 50, 8)


@pytest.mark.parametrize(("count", "sizes"), [(2, (1, 1)), (8, (6, 2)), (150, (100, 37)), (149, (100, 37))])
def test_a_quarter_of_few_samples_is_held_back(count: int, sizes: tuple[int, int]) -> None:
    found = split(count, 100, 64, 0)
    assert (len(found.calibration), len(found.held_back)) == sizes


def test_one_sample_is_too_few() -> None:
    with pytest.raises(InputError, match=r"at least 2 samples.*they have 1"):
        split(1, 10, 10, 0)
