"""Requantisation by one long product that adds, against the reference's arithmetic for every accumulator."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.arithmetic import numerics
from microfold.kernels.requantize.multiply_accumulate_long import plan_affine


@pytest.mark.parametrize("reach", [100, 9000, 150_000, 1_000_000])
@pytest.mark.parametrize("bias", [0, -12_345])
@pytest.mark.parametrize("shift", [-1, -4, -7, -10])
def test_every_accumulator(reach: int, bias: int, shift: int) -> None:
    rng = np.random.default_rng(reach - shift)
    mantissa = rng.integers(1 << 30, 1 << 31, 1)
    bounds = np.array([bias - reach]), np.array([bias + reach])
    shifts = np.array([shift])
    functions = plan_affine(np.array([bias]), bounds, (mantissa, shifts), -128, (-128, 127))
    assert functions is not None
    m, low, high = (int(field) for field in functions[0])
    assert 0 <= m < 1 << 31
    x = np.arange(-reach, reach + 1)
    constant = (high << 32) + (low & 0xFFFFFFFF)
    assert max(abs(constant), abs(constant + m * reach), abs(constant - m * reach)) < 1 << 63
    actual = (x * m + constant) >> 32
    assert np.abs(actual).max() < 1 << 31
    expected = numerics.multiply_by_quantized_multiplier(x + bias, mantissa, shifts) - 128
    assert np.array_equal(np.clip(actual, -128, 127), np.clip(expected, -128, 127))


@pytest.mark.parametrize(
    ("mantissa", "shift", "bias"),
    [
        (1 << 30, 0, 0),  # m would be 2^31
        ((1 << 30) + 12_345, -20, 0),  # m would be too short
        ((1 << 30) + 12_345, -7, 1 << 30),  # C might leave 64 bits
    ],
)
def test_what_has_no_line(mantissa: int, shift: int, bias: int) -> None:
    bounds = np.array([-(1 << 29)]), np.array([1 << 29])
    multipliers = np.array([mantissa]), np.array([shift])
    assert plan_affine(np.array([bias]), bounds, multipliers, 0, (-128, 127)) is None


def test_constant_channels() -> None:
    bounds = np.array([-500]), np.array([-400])
    functions = plan_affine(
        np.array([-450]), bounds, (np.array([1 << 30]), np.array([-7])), -128, (-128, 127)
    )
    assert functions is not None
    assert functions.tolist() == [[0, 0, -128]]
