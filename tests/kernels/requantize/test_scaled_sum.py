"""Requantisation of sums scaled by 256, as the C computes it, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.arithmetic import numerics
from microfold.ir.types import Array
from microfold.kernels.requantize.scaled_accumulator import PlaneRequantization, plan_plane_requantization

CHANNELS = 24


def _compute(plan: PlaneRequantization, products: Array, limits: tuple[int, int]) -> Array:
    """`products` are sums without the bias, [n, channels]; 32-bit arithmetic that must not overflow."""
    bias, m, addend, shift = plan.records.astype(np.int64).T
    left = shift if plan.shift else np.zeros_like(shift)
    total = bias + (products << (8 + left))
    held = m == 0
    assert np.all(held | (np.abs(total) < 1 << 31))
    scaled = (total * m >> 32) + addend
    if plan.form == "short":
        scaled -= np.where(total < 0, 128 << left, 0)
    assert np.abs(scaled).max() < 1 << 31
    return np.clip(scaled >> (plan.shift or shift), *limits)


@pytest.mark.parametrize(("relu", "positive"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("exponents", [(5, 9), (1, 2), (7, 7), (3, 14), (9, 16)])
def test_equals_the_reference(exponents: tuple[int, int], relu: bool, positive: bool) -> None:
    rng = np.random.default_rng(exponents[0])
    limits = (-9 if relu else -128, 127)
    bias = rng.integers(-60_000, 60_000, CHANNELS)
    reach = rng.integers(1, 200_000, CHANNELS)
    bias = reach + np.abs(bias) % 3 if positive else bias  # sums are never negative
    m = rng.integers(1 << 30, 1 << 31, CHANNELS)
    shifts = -rng.integers(exponents[0], exponents[1] + 1, CHANNELS)
    plan = plan_plane_requantization(bias, (bias - reach, bias + reach), m, shifts, -9, limits)
    assert plan is not None
    assert plan.form == ("short_relu" if relu or positive else "short")
    products = np.concatenate(
        [rng.integers(-reach, reach, (5000, CHANNELS), endpoint=True), [-reach, reach, -bias]]
    )
    products = np.clip(products, -reach, reach)
    expected = numerics.multiply_by_quantized_multiplier(bias + products, m, shifts).astype(np.int64) - 9
    assert np.array_equal(_compute(plan, products, limits), np.clip(expected, *limits))


def test_common_shift_where_it_fits() -> None:
    zeros = np.zeros(3, np.int64)
    m = np.full(3, 3 << 29)
    bounds = (zeros - 30_000, zeros + 30_000)
    common = plan_plane_requantization(zeros, bounds, m, np.array([-6, -8, -9]), 0, (-128, 127))
    mixed = plan_plane_requantization(zeros, bounds, m, np.array([-6, -8, -10]), 0, (-128, 127))
    assert common is not None
    assert mixed is not None
    assert (common.shift, common.records[:, 3].tolist()) == (16, [3, 1, 0])
    assert (mixed.shift, mixed.records[:, 3].tolist()) == (0, [13, 15, 17])


def test_constant_channels_need_no_accumulator() -> None:
    huge = np.array([1 << 30])
    plan = plan_plane_requantization(
        huge, (huge - 100, huge + 100), np.array([1 << 30]), np.array([-29]), 0, (-128, 127)
    )
    assert plan is not None
    assert _compute(plan, np.array([[-100], [100]]), (-128, 127)).tolist() == [[1], [1]]


def test_declines_large_accumulators() -> None:
    zero, reach = np.array([0]), np.array([1 << 23])
    assert (
        plan_plane_requantization(zero, (-reach, reach), np.array([1 << 30]), np.array([-8]), 0, (-128, 127))
        is None
    )
