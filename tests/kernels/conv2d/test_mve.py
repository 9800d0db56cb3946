"""Convolution for Helium, on the simulated core, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from microfold.kernels.conv2d.mve import Conv2DMve
from microfold.kernels.packing import mve
from tests.kernels import graphs
from tests.kernels.cores import check_all

SAME3 = ((1, 1), (1, 1))
RELU_OUT = graphs.int8_element(0.05, -128)
# Multipliers of one half and above: shifts of 0, and to the left.
FINE_OUT = graphs.int8_element(0.0004, 3)

CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    # pointwise, read in place: whole vectors, one and two of them in registers, more streamed
    "1x1 16": ((5, 5, 16, 8), {"kernel": (1, 1)}),
    "1x1 32 relu": ((3, 4, 32, 12), {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT}),
    "1x1 64 relu": ((3, 5, 64, 16), {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT}),
    "1x1 80 no activation": ((2, 3, 80, 8), {"kernel": (1, 1)}),
    "1x1 96 relu6 other zero point": ((2, 2, 96, 4), {"kernel": (1, 1), "activation": graphs.RELU6}),
    "1x1 one pixel": ((1, 1, 48, 32), {"kernel": (1, 1)}),
    # pointwise with a tail: the last pixels are copied
    "1x1 1": ((5, 7, 1, 4), {"kernel": (1, 1)}),
    "1x1 3": ((5, 5, 3, 7), {"kernel": (1, 1), "activation": graphs.RELU}),
    "1x1 8": ((6, 6, 8, 16), {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT}),
    "1x1 40": ((5, 5, 40, 5), {"kernel": (1, 1)}),
    "1x1 stride 2": ((5, 5, 16, 6), {"kernel": (1, 1), "strides": (2, 2)}),
    # windows
    "3x3 16 saturated": (
        (6, 5, 16, 8),
        {"padding": SAME3, "activation": graphs.RELU6, "out": RELU_OUT, "saturated": True},
    ),
    "3x3 16 saturated, no activation": ((5, 5, 16, 8), {"padding": SAME3, "saturated": True}),
    "3x3 stride 2": (
        (8, 7, 3, 8),
        {"padding": ((0, 1), (0, 1)), "strides": (2, 2), "activation": graphs.RELU, "out": RELU_OUT},
    ),
    "3x3 1 channel": ((6, 5, 1, 4), {"padding": SAME3}),
    "3x3 batch 2": ((5, 3, 6, 9), {"padding": SAME3, "batch": 2}),
    "3x3 width 1": ((6, 1, 5, 6), {"padding": SAME3}),
    "3x2 dilation 2x3": ((7, 6, 5, 9), {"kernel": (3, 2), "dilations": (2, 3), "padding": ((2, 2), (1, 1))}),
    "5x3": ((6, 5, 20, 6), {"kernel": (5, 3), "padding": ((2, 3), (1, 2))}),
    "5x5 mostly padding": ((2, 2, 3, 6), {"kernel": (5, 5), "padding": ((5, 4), (4, 6))}),
    "7x1": ((9, 4, 6, 5), {"kernel": (7, 1)}),
    "1x7": ((4, 9, 6, 5), {"kernel": (1, 7), "padding": ((0, 0), (3, 3))}),
    "10x4": ((15, 6, 1, 12), {"kernel": (10, 4), "padding": ((4, 5), (1, 1)), "strides": (2, 2)}),
    # requantisation
    "multipliers above one": ((4, 4, 16, 8), {"padding": SAME3, "out": FINE_OUT}),
    "multipliers above one, relu": (
        (3, 5, 24, 8),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": graphs.int8_element(0.0004, -128)},
    ),
    "tiny multipliers": ((4, 4, 48, 8), {"kernel": (1, 1), "out": graphs.int8_element(60.0, 1)}),
    "per tensor, no bias": ((4, 5, 7, 10), {"per_channel": False, "bias": False}),
}  # fmt: skip


@pytest.mark.slow
def test_equals_the_reference() -> None:
    cases = [graphs.conv2d_graph(*CASES[c][0], seed=len(c), **CASES[c][1]) for c in CASES]
    check_all(cases, "cortex-m55", {"s8_conv2d__mve_2x4"}, runs=8)


@pytest.mark.slow
def test_one_function_for_all_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few inputs and many, whole blocks of channels or not."""

    def any_size(kernel: Conv2DMve, _: object) -> list[Conv2DMve]:
        return [replace(kernel, any_size=True)]

    monkeypatch.setattr(Conv2DMve, "variants", any_size)
    shapes = ((6, 5, 8, 16), (4, 4, 32, 12), (3, 3, 19, 7), (5, 4, 60, 9), (3, 7, 64, 8))
    made = [
        graphs.conv2d_graph(
            *shape, kernel=(1, 1), activation=graphs.RELU, out=graphs.int8_element(0.05, -128)
        )
        for shape in shapes
    ]
    program = check_all(made, "cortex-m55", {"s8_conv2d__mve_2x4"}, runs=8)
    assert len({layer.call.function for layer in program.layers}) == 1


def test_blocks_hold_weights_and_records_in_reading_order() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(-128, 128, (7, 20)).astype(np.int8)
    records = rng.integers(-1000, 1000, (7, 3)).astype(np.int32)
    records[:, 2] = rng.integers(-31, 1, 7)
    packed = mve.pack_blocks(matrix, records)
    assert packed.dtype == np.int32 and packed.shape == (2, 4 + 2 * 16 + 5)
    weights = np.ascontiguousarray(packed[:, 4:36]).view(np.int8).reshape(2, 2, 4, 16)
    unpacked = weights.swapaxes(1, 2).reshape(8, 32)
    assert np.array_equal(unpacked[:7, :20], matrix)
    assert not unpacked[7:].any() and not unpacked[:, 20:].any()
    assert np.array_equal(packed[:, :4].reshape(-1)[:7], records[:, 0])
    assert np.array_equal(packed[:, 36:40].reshape(-1)[:7], records[:, 1])
    shifts = np.ascontiguousarray(packed[:, 40:]).view(np.int8).reshape(-1)
    assert np.array_equal(shifts[:7], records[:, 2])
