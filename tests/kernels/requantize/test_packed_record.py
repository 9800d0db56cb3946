"""Requantisation by two words for a channel, against the reference's arithmetic for every sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.packed_record import PackedRequantization, pack_records
from microfold.kernels.requantize.pre_shifted_accumulator import (
    SmladRequantization,
    plan_smlad_requantization,
)
from tests.draws import CHANNEL
from tests.kernels.requantize.test_biasless_sum import reference


def computed(plan: PackedRequantization, products: Array, limits: tuple[int, int]) -> Array:
    """What the C computes from sums without bias [..., channels]; asserts that 32 bits hold all."""

    def checked(values: Array) -> Array:
        assert np.abs(values).max() < 1 << 31
        return values

    field, m = plan.records.astype(np.int64).T
    left = field & 15
    shifted = checked(checked(products + (field >> 4)) << left)
    scaled = checked((shifted * m >> 32) + plan.middle + (1 << left >> 2))
    return np.clip(checked(scaled - (((shifted >> 31) & (1 << left)) >> 1)) >> plan.shift, *limits)


def planned(
    bias: Array,
    bounds: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    zero_point: int,
    limits: tuple[int, int],
) -> SmladRequantization:
    matrix = np.ones((len(bias), 1), np.int8)
    return plan_smlad_requantization(matrix, bias, bounds, multipliers, zero_point, limits, common=True)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("reach", [900, 20_000, 400_000])
def test_every_sum(reach: int, relu: bool) -> None:
    rng = np.random.default_rng(reach + relu)
    channels = 7
    for _ in range(4):
        mantissas = rng.integers(1 << 30, 1 << 31, channels)
        shifts = -rng.integers(7, 10, channels)
        zero_point = int(rng.integers(-128, 128))
        limits = (zero_point if relu else -128, 127)
        low, high = rng.integers(-reach, 1, channels), rng.integers(0, reach + 1, channels)
        # One whose output is the same for all inputs.
        low[3], high[3], shifts[3] = -reach, -reach + 1, -1
        bias = rng.integers(low - reach, high + reach + 1)
        shifted = planned(bias, (low, high), (mantissas, shifts), zero_point, limits)
        plan = pack_records(shifted, zero_point)
        assert plan is not None
        for c in range(channels):
            x = np.arange(low[c], high[c] + 1)
            one = replace(plan, records=plan.records[c : c + 1])
            products = (x - bias[c])[:, None] * int(shifted.matrix[c, 0])
            expected = reference(x, (mantissas[c], shifts[c]), zero_point, limits)
            assert np.array_equal(computed(one, products, limits)[:, 0], expected)


@given(
    mantissa=st.integers((1 << 30) + 1, (1 << 31) - 1),
    shift=st.integers(-14, 0),
    **CHANNEL,
)
def test_drawn_channels(
    mantissa: int,
    shift: int,
    ends: tuple[int, int],
    bias: int,
    zero_point: int,
    limits: tuple[int, int],
) -> None:
    """Whatever is planned is the reference."""
    (low, high), clamps = sorted(ends), (min(limits), max(limits))
    multipliers = np.array([mantissa]), np.array([shift])
    shifted = planned(np.array([bias]), (np.array([low]), np.array([high])), multipliers, zero_point, clamps)
    plan = pack_records(shifted, zero_point)
    if plan is None:
        assert not shifted.shift
        return
    x = np.arange(low, high + 1)
    products = (x - bias)[:, None] * int(shifted.matrix[0, 0])
    expected = reference(x, (multipliers[0][0], multipliers[1][0]), zero_point, clamps)
    assert np.array_equal(computed(plan, products, clamps)[:, 0], expected)


@pytest.mark.parametrize(("bias", "fits"), [((1 << 27) - 1, True), (1 << 27, False), (-(1 << 27), False)])
def test_a_bias_that_does_not_fit_is_refused(bias: int, fits: bool) -> None:
    multipliers = np.array([3 << 29]), np.array([-8])
    plan = planned(np.array([bias]), (np.array([-900]), np.array([900])), multipliers, 3, (-128, 127))
    packed = pack_records(plan, 3)
    assert (packed is not None) == fits
    assert packed is None or packed.biases.tolist() == [bias]


def test_other_forms_are_refused() -> None:
    multipliers = np.array([3 << 29, 3 << 29]), np.array([-4, -20])
    bounds = np.array([-900, -(1 << 22)]), np.array([900, 1 << 22])
    apart = planned(np.zeros(2, np.int64), bounds, multipliers, 3, (-128, 127))
    assert not apart.shift and apart.form is not RequantizeForm.GENERAL
    assert pack_records(apart, 3) is None
    general = planned(np.zeros(2, np.int64), bounds, (multipliers[0], np.array([2, 2])), 3, (-128, 127))
    assert general.form is RequantizeForm.GENERAL and pack_records(general, 3) is None
