"""Fixed-point arithmetic against its definitions in Python's integers and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from microfold.arithmetic import fixed_point, numerics
from microfold.errors import TypeRuleError
from microfold.ir.types import DType, ElementType, Quant

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
MANTISSA = st.integers(1 << 30, (1 << 31) - 1)


def truncating_division(numerator: int, denominator: int) -> int:
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator >= 0) == (denominator > 0) else -quotient


def high_mul(a: int, b: int) -> int:
    product = a * b
    nudge = (1 << 30) if product >= 0 else 1 - (1 << 30)
    return min(truncating_division(product + nudge, 1 << 31), (1 << 31) - 1)


def divide_by_pot(x: int, exponent: int) -> int:
    """Nearest integer, ties away from zero."""
    magnitude = math.floor(Fraction(abs(x), 1 << exponent) + Fraction(1, 2))
    return magnitude if x >= 0 else -magnitude


def wrap32(x: int) -> int:
    return (x + (1 << 31)) % (1 << 32) - (1 << 31)


@given(INT32, INT32)
def test_saturating_rounding_doubling_high_mul(a: int, b: int) -> None:
    assert int(numerics.saturating_rounding_doubling_high_mul(np.array(a), b)) == high_mul(a, b)


@given(INT32, st.integers(0, 31))
def test_rounding_divide_by_pot(x: int, exponent: int) -> None:
    assert int(numerics.rounding_divide_by_pot(np.array(x), exponent)) == divide_by_pot(x, exponent)


@given(INT32, MANTISSA, st.integers(-31, 20))
def test_multiply_by_quantized_multiplier(x: int, mantissa: int, shift: int) -> None:
    shifted = wrap32(x << max(shift, 0))
    expected = divide_by_pot(high_mul(shifted, mantissa), max(-shift, 0))
    assert int(numerics.multiply_by_quantized_multiplier(np.array(x), mantissa, shift)) == expected


@given(st.integers(-(1 << 40), 1 << 40), MANTISSA, st.integers(-31, 7))
def test_multiply_int64_by_quantized_multiplier(x: int, mantissa: int, shift: int) -> None:
    reduced = 0x7FFF if mantissa >= 0x7FFF0000 else (mantissa + (1 << 15)) >> 16
    expected = wrap32((x * reduced + (1 << (14 - shift))) >> (15 - shift))
    assert int(numerics.multiply_int64_by_quantized_multiplier(np.array(x), mantissa, shift)) == expected


@given(st.floats(2.0**-30, 2.0**29))
def test_quantize_multiplier_is_the_nearest(real: float) -> None:
    mantissa, shift = numerics.quantize_multiplier(real, limit=1 << 31)
    assert 1 << 30 <= mantissa < 1 << 31
    value = Fraction(mantissa) * Fraction(2) ** (shift - 31)
    assert abs(value - Fraction(real)) <= Fraction(2) ** (shift - 32)


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        (0.0, (0, 0)),
        (1.0, (1 << 30, 1)),
        (0.5, (1 << 30, 0)),
        (2.0**-40, (0, 0)),
        (2.0**30 - 2.0**-2, (1 << 30, 31)),
    ],
)
def test_quantize_multiplier_ends(real: float, expected: tuple[int, int]) -> None:
    assert tuple(numerics.quantize_multiplier(real)) == expected


@pytest.mark.parametrize("real", [2.0**30, 1e30, math.inf, math.nan, -1.0])
def test_multipliers_out_of_range_are_refused(real: float) -> None:
    with pytest.raises(
        TypeRuleError, match=r"a multiplier made of scales must be in \[0, 1\.07374e\+09\); it is"
    ):
        numerics.quantize_multiplier(real)


@given(st.floats(-1e9, 1e9))
def test_round_half_away(real: float) -> None:
    exact = Fraction(real)
    magnitude = math.floor(abs(exact) + Fraction(1, 2))
    assert numerics.round_half_away(real) == (magnitude if exact >= 0 else -magnitude)
    assert float(numerics.round_half_away_array(np.array([real]))[0]) == numerics.round_half_away(real)


@given(
    st.lists(st.integers(-128, 127), min_size=1),
    st.integers(-128, 127),
    st.floats(1e-6, 1e3),
    st.floats(1e-6, 1e3),
)
def test_requantize_is_close_to_the_real_value(
    numbers: list[int], zero_point: int, scale: float, out_scale: float
) -> None:
    out = ElementType(DType.INT16, Quant.per_tensor(out_scale))
    assume(scale / out_scale < 1 << 20)
    multiplier = numerics.quantize_multiplier(scale / out_scale)
    result = numerics.requantize(np.array(numbers, np.int8), zero_point, multiplier, out)
    real = (np.array(numbers) - zero_point) * (scale / out_scale)
    assert np.abs(result - np.clip(real, -32768, 32767)).max() <= 1


@given(st.integers(1, (1 << 31) - 1))
def test_inverse_sqrt(x: int) -> None:
    mantissa, shift = fixed_point.inverse_sqrt(np.array([x]))
    assert float(mantissa[0]) * 2.0 ** (int(shift[0]) - 31) == pytest.approx(x**-0.5, rel=2e-6)


@given(st.integers(-(1 << 31), 0), st.integers(0, 5))
def test_exp_on_negative_values(raw: int, integer_bits: int) -> None:
    result = int(fixed_point.exp_on_negative_values(np.array([raw], np.int32), integer_bits)[0])
    assert result / 2**31 == pytest.approx(math.exp(raw / 2 ** (31 - integer_bits)), abs=1e-6)


@given(INT32)
def test_logistic_and_tanh(raw: int) -> None:
    raw = max(raw, -(1 << 31) + 1)
    x = raw / 2**27
    assert int(fixed_point.logistic(np.array([raw], np.int32), 4)[0]) / 2**31 == pytest.approx(
        1 / (1 + math.exp(-x)), abs=1e-6
    )
    assert int(fixed_point.tanh(np.array([raw], np.int32), 4)[0]) / 2**31 == pytest.approx(
        math.tanh(x), abs=1e-6
    )
