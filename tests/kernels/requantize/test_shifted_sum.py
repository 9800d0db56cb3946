"""Requantisation from shifted sums against the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from microfold.arithmetic import numerics
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.pre_shifted_accumulator import (
    SmladRequantization,
    plan_smlad_requantization,
)


def computed(plan: SmladRequantization, x: np.ndarray, limits: tuple[int, int]) -> np.ndarray:
    """What the C computes from sums [..., channels]."""
    _, m, addend, shift = plan.records.astype(np.int64).T
    scaled = (x << plan.left).astype(np.int32).astype(np.int64)
    u = (scaled * m >> 32) + addend
    if plan.form is RequantizeForm.SHORT:
        u -= (scaled < 0) * (1 << (plan.left - 1))
    assert np.abs(u).max() < 1 << 31
    return np.clip(u >> (plan.shift or shift), *limits)


# Shifts of sums that come out 64 times as large.
SHIFTED = {"common": True, "shifts": (15, 14, 16, 13, 17, 12, 18), "lefts": (6, 31)}


@pytest.mark.parametrize("choice", [{"common": True}, {"common": False}, SHIFTED], ids=str)
@pytest.mark.parametrize(("relu", "lowest_sum"), [(True, -1.0), (False, -1.0), (False, 0.0)])
@pytest.mark.parametrize("seed", range(20))
def test_equals_reference(seed: int, relu: bool, lowest_sum: float, choice: dict[str, Any]) -> None:
    rng = np.random.default_rng(seed)
    channels = 12
    mantissas = rng.integers(1 << 30, 1 << 31, channels).astype(np.int32)
    lowest = int(rng.integers(1, 12))
    shifts = -rng.integers(lowest, lowest + 6, channels).astype(np.int32)
    zero_point = int(rng.integers(-128, 128))
    limits = (zero_point if relu else -128, 127)
    magnitude = 1 << int(rng.integers(12, 21))
    matrix = np.ones((channels, 1), np.int8)
    low = int(lowest_sum * magnitude)
    bounds = np.full(channels, low), np.full(channels, magnitude)
    plan = plan_smlad_requantization(
        matrix, np.zeros(channels, np.int64), bounds, (mantissas, shifts), zero_point, limits, **choice
    )
    assert plan.form is (RequantizeForm.SHORT_RELU if relu or low == 0 else RequantizeForm.SHORT)
    constant = plan.records[:, 1] == 0
    assert not plan.shift or np.all(constant | (plan.left >= choice.get("lefts", (2,))[0]))
    x = rng.integers(low, magnitude, (20000, channels))
    # Sums next to where the rounding changes.
    ties = np.rint((np.arange(-300, 300)[:, None] + 0.5) * 2.0 ** (31 - shifts) / mantissas).astype(np.int64)
    near = (ties[None] + np.arange(-2, 3)[:, None, None]).reshape(-1, channels)
    x = np.concatenate([x, np.clip(near, low, magnitude), bounds[0][None], bounds[1][None]])
    scaled = numerics.multiply_by_quantized_multiplier(x, mantissas, shifts).astype(np.int64)
    assert np.array_equal(computed(plan, x, limits), np.clip(scaled + zero_point, *limits))


def plan_one(mantissa: int, shift: int, low: int, high: int) -> SmladRequantization:
    multipliers = np.array([mantissa], np.int32), np.array([shift], np.int32)
    bounds = np.array([low]), np.array([high])
    matrix, bias = np.ones((1, 1), np.int8), np.array([7])
    return plan_smlad_requantization(matrix, bias, bounds, multipliers, 3, (-128, 127), common=True)


def test_constant_channels_lose_their_weights() -> None:
    plan = plan_one(3 << 29, -27, -(1 << 24), 1 << 24)
    assert not plan.matrix.any()
    assert [bound.tolist() for bound in plan.bounds] == [[0], [0]]
    assert plan.records[0, :2].tolist() == [0, 0]
    assert computed(plan, np.zeros((1, 1), np.int64), (-128, 127)).tolist() == [[3]]


@pytest.mark.parametrize(
    ("mantissa", "shift", "magnitude"),
    [(3 << 29, 2, 1000), (3 << 29, 0, 100), (0, -3, 100), (1 << 30, -6, 1 << 16), (3 << 29, -5, 1 << 30)],
)
def test_general_where_the_proof_does_not_hold(mantissa: int, shift: int, magnitude: int) -> None:
    plan = plan_one(mantissa, shift, -magnitude, magnitude)
    if mantissa:
        assert plan.form is RequantizeForm.GENERAL
        assert plan.records.tolist() == [[7, mantissa, 3, shift]]
    else:
        assert plan.records[0, 1] == 0
