"""Logistic and tanh of int16: how exact they are, over all of their inputs."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.arithmetic import fixed_point_16

INPUTS = np.arange(-(1 << 15), 1 << 15)
ONE = 1 << 15


def test_logistic() -> None:
    result = fixed_point_16.logistic(INPUTS, 3)
    assert np.abs(result / ONE - 1 / (1 + np.exp(-INPUTS / 2**12))).max() < 7 / ONE
    assert (result[INPUTS > 0] + fixed_point_16.logistic(-INPUTS[INPUTS > 0], 3) == fixed_point_16.MAX).all()


@pytest.mark.parametrize("bits", range(fixed_point_16.LARGEST_INTEGER_BITS + 1))
def test_tanh(bits: int) -> None:
    result = fixed_point_16.tanh(INPUTS, bits)
    assert np.abs(result / ONE - np.tanh(INPUTS / 2.0 ** (15 - bits))).max() < 13 / ONE
    assert (result[INPUTS > 0] == -fixed_point_16.tanh(-INPUTS[INPUTS > 0], bits)).all()


def test_what_the_c_leaves_out() -> None:
    """No step of an exponential or of a reciprocal saturates; products never are (-1) * (-1)."""

    def multiply(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
        return (a * b + (1 << 14)) >> 15

    x = np.arange(-(1 << 13), 0)
    y = x + (1 << 12)
    y2 = multiply(y, y)
    y4_over_4 = (multiply(y2, y2) + 2) >> 2
    terms = (multiply(y4_over_4 + multiply(y2, y), fixed_point_16.ONE_THIRD) + y2 + 1) >> 1
    factor = fixed_point_16.EXP_MINUS_ONE_EIGHTH
    series = factor + multiply(y + terms, factor)
    # With one integer bit a quarter is 2^12, so that these are the numbers below it.
    theirs = fixed_point_16.exp_on_negative_values(np.arange(-(1 << 12), 0), 1)
    np.testing.assert_array_equal(series[::2], theirs)

    x = np.arange(1 << 15)
    half = (x + (1 << 15)) >> 1
    estimate = 23130 + multiply(half, -15420)
    for _ in range(3):
        estimate = estimate + 4 * multiply(estimate, (1 << 13) - multiply(half, estimate))
    exact = ONE / 2 / (1 + x / ONE)
    assert np.abs(estimate - exact).max() < 8
    assert estimate.max() == 1 << 14
