"""The short requantisation forms against the reference's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from microfold.arithmetic import numerics
from microfold.ir.types import Array
from microfold.kernels.requantize.mul_hi import RequantizeForm, plan_requantization


def _short(form: RequantizeForm, record: Array, x: Array) -> Array:
    """What the C helpers compute, in 64 bits; asserts that 32 bits hold every step."""
    _, m, addend, shift = (int(field) for field in record)
    shifted = x * 4
    assert np.abs(shifted).max() < 1 << 31
    u = ((shifted * m) >> 32) + addend
    assert np.abs(u).max() < (1 << 31) - 2
    if form is RequantizeForm.SHORT:
        u = u - np.where(x < 0, 2, 0)
    return u >> shift


def _accumulators(limit: int, m: int, e: int, rng: np.random.Generator) -> Array:
    """Random ones, small ones, and those next to rounding ties."""
    step = 2.0 ** (31 + e) / max(m, 1)
    count = min(max(limit / step, 1.0), 1000.0)
    ties = ((np.arange(-count, count) + 0.5) * step).astype(np.int64)
    near = (ties[:, None] + np.arange(-2, 3)).reshape(-1)
    everywhere = rng.integers(-limit, limit, 2000, endpoint=True)
    x = np.concatenate([near, everywhere, np.arange(-50, 51), [-limit, limit]])
    return x[np.abs(x) <= limit]


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(st.just(1 << 30), st.just((1 << 31) - 1), st.integers(1 << 30, (1 << 31) - 1), st.just(0)),
    st.integers(-2, 31),
    st.integers(-128, 127),
    st.integers(1, (1 << 29) + 5),
    st.booleans(),
    st.booleans(),
)
@example(1 << 30, 0, 0, 1 << 20, False, False)
@example((1 << 31) - 1, 0, 3, 1 << 28, False, False)
@example(1 << 30, 5, 0, 1 << 20, False, False)
@example(1 << 30, 5, 0, 1 << 20, False, True)
def test_short_forms_are_exact(
    m: int, e: int, zero_point: int, limit: int, relu: bool, positive: bool
) -> None:
    low = zero_point if relu else -128
    plan = plan_requantization(
        np.array([0]),
        (np.array([0 if positive else -limit]), np.array([limit])),
        np.array([m]),
        np.array([-e]),
        zero_point,
        low,
    )
    assert not (positive and plan.form is RequantizeForm.SHORT)
    if plan.form is RequantizeForm.GENERAL:
        return
    x = _accumulators(limit, m, e, np.random.default_rng(0))
    x = x[x >= 0] if positive else x
    expected = numerics.multiply_by_quantized_multiplier(x, m, -e).astype(np.int64) + zero_point
    actual = _short(plan.form, plan.records[0], x)
    assert np.array_equal(np.clip(actual, low, 127), np.clip(expected, low, 127))


@pytest.mark.parametrize(
    ("e", "relu", "form"), [(7, True, "short_relu"), (7, False, "short"), (0, False, "short_relu")]
)
def test_usual_layers_get_a_short_form(e: int, relu: bool, form: str) -> None:
    bounds = (np.array([-(1 << 22)]), np.array([1 << 22]))
    plan = plan_requantization(
        np.array([0]), bounds, np.array([3 << 29]), np.array([-e]), 5, 5 if relu else -128
    )
    assert plan.form.value == form


def test_a_channel_whose_output_never_changes_costs_nothing() -> None:
    """A multiplier that is zero or tiny next to a usual one does not force the general form."""
    bounds = (np.full(3, -(1 << 20)), np.full(3, 1 << 20))
    mantissas, shifts = np.array([3 << 29, 0, 3 << 29]), np.array([-7, 0, -31])
    plan = plan_requantization(np.zeros(3, np.int64), bounds, mantissas, shifts, -4, -128)
    assert plan.form is RequantizeForm.SHORT
    x = np.arange(-(1 << 20), 1 << 20, 997)
    for record in plan.records[1:]:
        assert (_short(plan.form, record, x) == -4).all()
