from __future__ import annotations

import numpy as np
import pytest

from microfold.arithmetic import numerics
from microfold.arithmetic.step_function import breakpoints, first_difference
from microfold.ir.types import Array

LOW, HIGH = np.array([-4000, -100]), np.array([5000, 4000])


def stairs(real: float):
    multiplier = numerics.quantize_multiplier(real)

    def run(sums: Array) -> Array:
        scaled = numerics.multiply_by_quantized_multiplier(sums, *multiplier)
        return np.clip(scaled.astype(np.int64), -128, 127)

    return run


def brute(function: object, channel: int) -> Array:
    sums = np.arange(LOW[channel], HIGH[channel] + 1)
    return function(np.stack([sums, sums], axis=1))[:, channel]  # type: ignore[operator]


@pytest.mark.parametrize("real", [0.003, 0.02, 0.7])
def test_steps_are_where_values_change(real: float) -> None:
    function = stairs(real)
    found = breakpoints(function, LOW, HIGH)
    for channel in (0, 1):
        values = brute(function, channel)
        rises = LOW[channel] + 1 + np.flatnonzero(np.diff(values))
        assert set(rises.tolist()) <= set(found[:, channel].tolist())


@pytest.mark.parametrize("second", [0.02, 0.0200001, 0.0201, 0.03])
def test_equal_exactly_where_every_sum_says_so(second: float) -> None:
    functions = stairs(0.02), stairs(second)
    same = all(np.array_equal(brute(functions[0], c), brute(functions[1], c)) for c in (0, 1))
    found = first_difference(*functions, functions, LOW, HIGH)
    assert (found is None) == same
    if found is not None:
        channel, value = found
        at = np.full((1, 2), value)
        assert functions[0](at)[0, channel] != functions[1](at)[0, channel]


def test_a_difference_of_one_sum_is_found() -> None:
    first = stairs(0.02)
    edge = int(breakpoints(first, LOW, HIGH)[100, 0])

    def second(sums: Array) -> Array:  # one step comes one sum earlier, in channel 0 only
        early = (sums == edge - 1) & (np.arange(2) == 0)
        return np.where(early, first(sums + 1), first(sums))

    assert first_difference(first, second, (first, second), LOW, HIGH) == (0, edge - 1)
