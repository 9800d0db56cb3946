"""Requantisation of sums without bias, against the reference's arithmetic for every sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microfold.arithmetic import numerics
from microfold.ir.types import Array
from microfold.kernels.requantize.folded_bias import SHIFTS, BiaslessRequantization, plan_biasless
from tests.draws import CHANNEL


def computed(plan: BiaslessRequantization, sums: Array, taken: Array, limits: tuple[int, int]) -> Array:
    """What the C computes from sums [..., channels] that come out shifted; asserts that 32 bits hold all."""

    def checked(values: Array) -> Array:
        assert np.abs(values).max() < 1 << 31
        return values

    m, c = plan.records.astype(np.int64).T
    assert (m >= 0).all()
    shifted = checked(checked(sums << taken) << (m & 15))
    return np.clip(checked((shifted * m >> 32) + c) >> plan.shift, *limits)


def reference(x: Array, multipliers: tuple[Array, Array], zero_point: int, limits: tuple[int, int]) -> Array:
    scaled = numerics.multiply_by_quantized_multiplier(x, *multipliers).astype(np.int64)
    return np.clip(scaled + zero_point, *limits)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("reach", "taken"), [(60, 8), (900, 0), (900, 8), (20_000, 0), (20_000, 8)])
def test_every_sum(reach: int, relu: bool, taken: int) -> None:
    rng = np.random.default_rng(reach + relu)
    channels, found = 8, 0
    for _ in range(4):
        mantissas = rng.integers(1 << 30, 1 << 31, channels)
        mantissas[0] = 1 << 30
        shifts = -np.maximum(np.round(np.log2(reach / rng.uniform(1, 300, channels))), 0).astype(np.int64)
        zero_point = int(rng.integers(-128, 128))
        limits = (zero_point if relu else -128, 127)
        low, high = rng.integers(-reach, 1, channels), rng.integers(0, reach + 1, channels)
        if not relu:
            low = np.zeros_like(low)
        bias = rng.integers(low - reach, high + reach + 1)
        plan = plan_biasless(bias, (low, high), (mantissas, shifts), zero_point, limits, taken)
        if plan is None:
            continue
        found += 1
        for c in range(channels):
            x = np.arange(low[c], high[c] + 1)
            one = BiaslessRequantization(plan.shift, plan.records[c : c + 1])
            sums = (x - bias[c])[:, None] if plan.records[c, 0] else np.zeros((len(x), 1), np.int64)
            actual = computed(one, sums, np.array([taken]), limits)[:, 0]
            assert np.array_equal(actual, reference(x, (mantissas[c], shifts[c]), zero_point, limits))
    assert found


@given(
    mantissa=st.integers(1 << 30, (1 << 31) - 1),
    shift=st.integers(-14, 0),
    taken=st.sampled_from([0, 8]),
    **CHANNEL,
)
def test_drawn_channels(
    mantissa: int,
    shift: int,
    ends: tuple[int, int],
    bias: int,
    zero_point: int,
    limits: tuple[int, int],
    taken: int,
) -> None:
    """Whatever is planned is the reference; there are few refusals."""
    (low, high), clamps = sorted(ends), (min(limits), max(limits))
    multipliers = np.array([mantissa]), np.array([shift])
    bounds = np.array([low]), np.array([high])
    plan = plan_biasless(np.array([bias]), bounds, multipliers, zero_point, clamps, taken)
    x = np.arange(low, high + 1)
    expected = reference(x, (multipliers[0][0], multipliers[1][0]), zero_point, clamps)
    if plan is None:
        # Sums that are shifted this far may not fit; or halves round to both sides of the zero point.
        far = max(abs(low - bias), abs(high - bias)) << max(taken, 12 + shift) >= 1 << 30
        assert far or shift > -8 or low < 0
        return
    sums = (x - bias)[:, None] if plan.records[0, 0] else np.zeros((len(x), 1), np.int64)
    assert plan.shift in SHIFTS
    assert np.array_equal(computed(plan, sums, np.array([taken]), clamps)[:, 0], expected)


def plan_one(mantissa: int, shift: int, low: int, high: int, bias: int = 0) -> BiaslessRequantization | None:
    bounds = np.array([low]), np.array([high])
    return plan_biasless(
        np.array([bias]), bounds, (np.array([mantissa]), np.array([shift])), 3, (-128, 127), 8, 7
    )


def test_constant_channels_have_no_multiplier() -> None:
    plan = plan_one(3 << 29, -27, -(1 << 24), 1 << 24)
    assert plan is not None
    assert plan.records[0, 0] == 0
    assert computed(plan, np.zeros((1, 1), np.int64), np.array([8]), (-128, 127)).tolist() == [[3]]


def test_halves_of_both_signs_have_no_line() -> None:
    assert plan_one(3 << 29, -8, -30_000, 30_000) is None
    assert plan_one(3 << 29, -8, 0, 30_000) is not None


@pytest.mark.parametrize(("shift", "reach", "bias"), [(1, 1000, 0), (-9, 1 << 23, 0), (-9, 1000, 1 << 23)])
def test_what_does_not_fit_is_declined(shift: int, reach: int, bias: int) -> None:
    assert plan_one(3 << 29, shift, 0, reach, bias) is None


def test_one_channel_without_a_line_refuses_all() -> None:
    bounds = np.array([0, -30_000]), np.array([30_000, 30_000])
    multipliers = np.full(2, 3 << 29), np.full(2, -8)
    assert plan_biasless(np.zeros(2, np.int64), bounds, multipliers, 3, (-128, 127)) is None
    assert plan_biasless(np.zeros(2, np.int64), bounds, multipliers, 3, (3, 127)) is not None


def test_records_in_another_order() -> None:
    """With channels that are in it twice, and one that is constant."""
    bias, reach = np.array([100, 0, 7000, 5]), np.array([30_000, 1, 20_000, 30_000])
    multipliers = np.array([3 << 29, 5 << 28, 9 << 27, 1 << 30]), np.array([-8, -20, -7, -8])
    bounds = bias, bias + reach
    order, taken = np.array([2, 0, 3, 1, 3, 2]), np.arange(6) % 2 * 8
    found = plan_biasless(bias, bounds, multipliers, 3, (-128, 127), taken, order=order)
    moved = bounds[0][order], bounds[1][order]
    expected = plan_biasless(
        bias[order], moved, (multipliers[0][order], multipliers[1][order]), 3, (-128, 127), taken
    )
    assert found is not None
    assert expected is not None
    assert found.shift == expected.shift
    assert np.array_equal(found.records, expected.records)
