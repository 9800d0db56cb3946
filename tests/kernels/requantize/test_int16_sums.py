"""One multiplication of 32 bits gives what the reference's of 64 bits does."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.arithmetic import numerics
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize.int16_sums import (
    LARGEST_SHIFT,
    SMALLEST_SHIFT,
    plan_int16_requantization,
)
from tests.kernels import graphs
from tests.kernels.choice import layer_of
from tests.kernels.portable import as_int16

SUMS = np.concatenate(
    [
        np.random.default_rng(0).integers(-(1 << 31), 1 << 31, 200_000),
        np.random.default_rng(1).integers(-(1 << 20), 1 << 20, 200_000),
        np.array([-(1 << 31), (1 << 31) - 1, -1, 0, 1]),
    ]
)


def layer(saturated: bool = False) -> LayerContext:
    graph = as_int16(graphs.fully_connected_graph(600 if saturated else 8, 4, saturated=saturated))
    return layer_of(graph)


@pytest.mark.parametrize("shift", [-32, -20, -7, -2])
@pytest.mark.parametrize("mantissa", [1 << 30, 1518500250, (1 << 31) - 1])
def test_equals_the_reference(mantissa: int, shift: int) -> None:
    multipliers = np.full(4, mantissa, np.int32), np.full(4, shift, np.int32)
    plan = plan_int16_requantization(layer(), np.ones((4, 8), np.int8), multipliers)
    assert plan is not None and plan.form == "once" and not plan.long
    _, multiplier, addend, right = (int(value) for value in plan.records[0])
    scaled = (((SUMS * multiplier) >> 32) + addend) >> right
    expected = numerics.multiply_int64_by_quantized_multiplier(SUMS, multipliers[0][0], multipliers[1][0])
    assert np.array_equal(scaled, expected)


def test_other_multipliers_keep_the_long_form() -> None:
    for shift in (15 - SMALLEST_SHIFT + 1, 15 - LARGEST_SHIFT - 1):
        multipliers = np.full(4, 1 << 30, np.int32), np.full(4, shift, np.int32)
        plan = plan_int16_requantization(layer(), np.ones((4, 8), np.int8), multipliers)
        assert plan is not None and plan.form == "wide" and not plan.long


def test_sums_that_leave_32_bits_are_long() -> None:
    multipliers = np.full(4, 1 << 30, np.int32), np.full(4, -10, np.int32)
    plan = plan_int16_requantization(layer(True), np.full((4, 600), -128, np.int8), multipliers)
    assert plan is not None and plan.form == "wide" and plan.long
