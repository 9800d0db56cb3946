"""Winograd convolutions on the simulated core, bit for bit; the ranges that their proof rests on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from microfold.kernels.conv2d.dsp_winograd import (
    FILTER_TRANSFORMS,
    INPUT_OFFSETS,
    INVERSES,
    POSITIVE_INPUT,
    POSITIVE_RESULT,
    SCALE_BITS,
    transform_filters,
)
from microfold.options import Options
from microfold.target import Target
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import assert_chosen, assert_exact, compile_all, load
from tests.needs import CROSS_TOOLS
from tests.sampling import sampled

SAME = ((1, 1), (1, 1))
SPEED = Options(optimize="speed")
INPUT_TRANSFORMS = {
    2: np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
    4: np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ]
    ),
}
OUTPUT_TRANSFORMS = {
    2: np.array([[1, 1, 1, 0], [0, 1, -1, -1]]),
    4: np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 4]]),
}


@pytest.mark.parametrize("tile", [2, 4])
def test_the_transforms_compute_convolutions(tile: int) -> None:
    rng = np.random.default_rng(tile)
    image = rng.integers(0, 256, (tile + 2, tile + 2))
    filters = rng.integers(-128, 128, (1, 3, 3, 1))
    b, a = INPUT_TRANSFORMS[tile], OUTPUT_TRANSFORMS[tile]
    products = (b @ image @ b.T) * transform_filters(filters, tile)[0, :, :, 0]
    direct = [
        [int((image[y : y + 3, x : x + 3] * filters[0, :, :, 0]).sum()) for x in range(tile)]
        for y in range(tile)
    ]
    factor = (9 if tile == 4 else 1) << SCALE_BITS[tile]
    assert (a @ products @ a.T).tolist() == [[factor * value for value in row] for row in direct]


def extremes(tile: int, lowest: int, highest: int) -> tuple[int, int]:
    """The smallest and largest coefficient of all, over all inputs of the range."""
    b = INPUT_TRANSFORMS[tile]
    positions = [np.outer(row, column) for row, column in itertools.product(b, b)]
    sums = [(int(np.minimum(p, 0).sum()), int(np.maximum(p, 0).sum())) for p in positions]
    return (
        min(highest * negative + lowest * positive for negative, positive in sums),
        max(lowest * negative + highest * positive for negative, positive in sums),
    )


def test_ranges_of_transformed_inputs() -> None:
    assert extremes(2, -128, 127) == (-512, 510)
    assert extremes(4, -128, 127) == (-12768, 12750)
    lowest, highest = extremes(4, -128 + POSITIVE_INPUT, 127 + POSITIVE_INPUT)
    # The lower half never borrows from the upper one.
    assert (lowest + POSITIVE_RESULT, highest + POSITIVE_RESULT) == (50, 30140)


def test_what_is_added_to_inputs_reaches_every_position() -> None:
    b = INPUT_TRANSFORMS[4]
    assert np.all(b @ (INPUT_OFFSETS - POSITIVE_INPUT) @ b.T == POSITIVE_RESULT)
    # That is how the kernel does it: in the second dimension.
    assert np.all(b @ np.array([0, 0, 0, 0, 1, 1]) == 1)


@pytest.mark.parametrize("tile", [2, 4])
def test_factors(tile: int) -> None:
    factor = 9 if tile == 4 else 1
    assert factor * INVERSES[tile] % (1 << 32) == 1


@pytest.mark.parametrize("tile", [2, 4])
def test_all_int8_filters_fit(tile: int) -> None:
    g = np.abs(FILTER_TRANSFORMS[tile]).sum(axis=1).max()
    assert 128 * g * g < 1 << 15


CASES: dict[str, tuple[tuple[int, int, int, int], dict[str, Any]]] = {
    "whole tiles": ((8, 16, 8, 16), {"padding": SAME}),
    "parts of tiles, relu": (
        (9, 7, 16, 10),
        {"padding": SAME, "activation": graphs.RELU, "out": graphs.int8_element(0.05, -128)},
    ),
    "many channels": ((6, 6, 20, 6), {"padding": SAME}),
    "odd channels, relu6": ((5, 11, 12, 7), {"activation": graphs.RELU6}),
    "batch 3": ((6, 5, 4, 6), {"padding": SAME, "batch": 3}),
    "asymmetric padding": ((7, 6, 4, 8), {"padding": ((0, 2), (2, 1))}),
    "large padding": ((3, 3, 8, 8), {"padding": ((4, 4), (5, 4))}),
    "one output": ((3, 3, 8, 4), {}),
    "multiplier above one": ((6, 6, 8, 8), {"padding": SAME, "out": graphs.int8_element(0.00002, 0)}),
    "no common shift": ((8, 8, 16, 8), {"padding": SAME, "out": graphs.int8_element(0.0002, 3)}),
    "saturated weights": (
        (8, 8, 16, 6),
        {"padding": SAME, "saturated": True, "out": graphs.int8_element(4.0, 7)},
    ),
}


needs_core = pytest.mark.needs(*CROSS_TOOLS)


@pytest.mark.slow
@pytest.mark.always
@needs_core
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m7"]))
def test_on_core(tile: int, core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(CASES, tile, monkeypatch, load(core))


@pytest.mark.slow
@needs_core
@pytest.mark.parametrize(("core", "flag"), [("cortex-m33", ""), ("cortex-m4", "-DMF_NO_ASM")])
def test_other_cores_and_compilers(core: str, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for tile in (2, 4):
        _check(["parts of tiles, relu"], tile, monkeypatch, load(core, *flag.split()))


def _check(names: Iterable[str], tile: int, monkeypatch: pytest.MonkeyPatch, machine: Target) -> None:
    cases = {name: graphs.conv2d_graph(*CASES[name][0], **CASES[name][1]) for name in names}
    wanted = f"s8_conv2d__dsp_winograd_{tile}x{tile}"
    # Whatever the costs are.
    prefer(monkeypatch, wanted)
    program, layers = compile_all(cases, machine, SPEED)
    assert_chosen(layers, wanted)
    assert_exact(program, 8)
