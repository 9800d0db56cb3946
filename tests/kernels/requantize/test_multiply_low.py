"""Requantisation by products of 32 bits, against the reference's arithmetic for every accumulator."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.arithmetic import numerics
from microfold.ir.types import Array
from microfold.kernels.requantize.mul_lo import NarrowForm, plan_narrow


def _narrow(form: NarrowForm, record: Array, x: Array) -> Array:
    """What the C helpers compute; asserts that 32 bits hold every step."""
    _, m, c, shift = (int(field) for field in record)

    def checked(values: Array) -> Array:
        assert np.abs(values).max() < 1 << 31
        return values

    assert 0 <= m < 1 << form.bits
    mask = (1 << form.piece) - 1
    carried = np.zeros_like(x)
    for lower in range(0, form.cut, form.piece):
        carried = checked(x * (m >> lower & mask) + carried) >> form.piece
    scaled = checked(checked(x * (m >> form.cut) + carried) + c)
    if form.signed:
        scaled = checked(scaled - np.where(x < 0, 1 << form.piece, 0))
    return scaled >> shift


def _plan(
    mantissas: Array, shifts: Array, reach: Array, zero_point: int, low: int
) -> tuple[NarrowForm, Array] | None:
    bias = np.arange(mantissas.size)
    return plan_narrow(bias, (-reach, reach), (mantissas, shifts), zero_point, (low, 127))


@pytest.mark.parametrize("zero_point", [-128, 3, 127])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("reach", [100, 9000, 150_000, 1_000_000])
def test_every_accumulator(reach: int, relu: bool, zero_point: int) -> None:
    rng = np.random.default_rng(reach + zero_point + 128)
    mantissas = rng.integers(1 << 30, 1 << 31, 6)
    mantissas[0] = 1 << 30
    step = reach / rng.uniform(50, 300, 6)
    shifts = -np.maximum(np.round(np.log2(step)).astype(np.int64), 0)
    low = zero_point if relu else -128
    found = 0
    for channel in range(6):
        one = slice(channel, channel + 1)
        planned = _plan(mantissas[one], shifts[one], np.array([reach]), zero_point, low)
        if planned is None:
            continue
        found += 1
        x = np.arange(-reach, reach + 1)
        expected = numerics.multiply_by_quantized_multiplier(x, mantissas[channel], shifts[channel])
        actual = _narrow(planned[0], planned[1][0], x)
        assert planned[1][0, 0] == 0
        assert np.array_equal(np.clip(actual, low, 127), np.clip(expected + zero_point, low, 127))
    assert found >= 4


def test_constant_channels_fit_in_any_form() -> None:
    """A multiplier that is tiny next to a usual one does not forbid a short form."""
    mantissas, shifts = np.array([3 << 29, 3 << 29]), np.array([-9, -31])
    planned = _plan(mantissas, shifts, np.array([100_000, 100_000]), 5, 5)
    assert planned is not None
    x = np.array([-100_000, -1, 0, 1, 100_000])
    assert (_narrow(planned[0], planned[1][1], x) == 5).all()


def test_the_last_sums_do_not_step_on() -> None:
    """The largest sum is one below the reference's next step."""
    low, high, zero_point = -2459, 1090, 27
    mantissa, shift = np.array([1511728501]), np.array([-9])
    planned = plan_narrow(
        np.zeros(1), (np.array([low]), np.array([high])), (mantissa, shift), zero_point, (zero_point, 127)
    )
    assert planned is not None
    x = np.arange(low, high + 1)
    expected = numerics.multiply_by_quantized_multiplier(x, mantissa, shift) + zero_point
    assert expected[-1] < 127
    assert np.array_equal(
        np.clip(_narrow(planned[0], planned[1][0], x), zero_point, 127), expected.clip(zero_point)
    )


def test_forms_from_short_to_long() -> None:
    one = np.array([1_900_000_000]), np.array([-9])
    forms = []
    for reach, low in ((100_000, 3), (100_000, -128), (1_500_000, 3)):
        planned = _plan(*one, np.array([reach]), 3, low)
        assert planned is not None
        forms.append(planned[0].value)
    assert forms == ["narrow_24", "narrow_24_signed", "narrow_30"]


@pytest.mark.parametrize(("shift", "reach"), [(1, 1000), (-9, 1 << 22)])
def test_what_does_not_fit_is_declined(shift: int, reach: int) -> None:
    assert _plan(np.array([3 << 29]), np.array([shift]), np.array([reach]), 0, -128) is None
