"""Convolution for Helium, on the simulated core, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from microfold.ir.types import DType
from microfold.kernels.packing import mve
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.cores import assert_exact, check_all, compile_all, load

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
    "4x3 4 channels": ((9, 7, 4, 6), {"kernel": (4, 3), "padding": ((1, 2), (1, 1))}),
    "2x5 3 channels": ((6, 9, 3, 4), {"kernel": (2, 5), "padding": ((1, 0), (2, 2))}),
    "1x5 2 channels": ((3, 9, 2, 4), {"kernel": (1, 5)}),
    # windows as parts of strips of columns
    "3x3 16 odd number of pixels": ((5, 7, 16, 8), {"padding": SAME3}),
    "3x3 32 batch 3, odd rows": ((4, 5, 32, 8), {"padding": SAME3, "batch": 3}),
    "3x3 48 stride 2": ((9, 10, 48, 8), {"padding": ((0, 1), (0, 1)), "strides": (2, 2)}),
    "3x3 80 no padding": ((5, 10, 80, 4), {}),
    "3x3 16 one column": ((5, 1, 16, 8), {"padding": SAME3}),
    "5x5 16": ((6, 13, 16, 4), {"kernel": (5, 5), "padding": ((2, 2), (2, 2))}),
    "2x7 16 stride 2": ((4, 17, 16, 12), {"kernel": (2, 7), "padding": ((0, 1), (3, 3)), "strides": (1, 2)}),
    "3x1 16 odd": ((5, 3, 16, 8), {"kernel": (3, 1), "padding": ((1, 1), (0, 0))}),
    "1x3 16 stride 3": ((3, 9, 16, 8), {"kernel": (1, 3), "strides": (1, 3)}),
    "3x2 16 stride 3": ((7, 8, 16, 8), {"kernel": (3, 2), "strides": (3, 3)}),
    "5x5 16 mostly padding": ((2, 2, 16, 4), {"kernel": (5, 5), "padding": ((5, 4), (4, 6))}),
    # in registers while the weights go by: many pixels
    "1x1 16 in registers": ((16, 17, 16, 12), {"kernel": (1, 1)}),
    "1x1 8 relu in registers": (
        (24, 12, 8, 16),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT},
    ),
    "1x1 32 relu in registers, channel tail": (
        (14, 15, 32, 13),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT, "saturated": True},
    ),
    "1x1 32 in registers, 21 channels": ((9, 10, 32, 21), {"kernel": (1, 1), "saturated": True}),
    "1x1 24 relu6 in registers, 40 channels": (
        (5, 9, 24, 40),
        {"kernel": (1, 1), "activation": graphs.RELU6},
    ),
    "1x1 16 relu6 in registers, 24 channels": (
        (5, 9, 16, 24),
        {"kernel": (1, 1), "activation": graphs.RELU6},
    ),
    "1x1 7 in registers, 16 channels": ((5, 9, 7, 16), {"kernel": (1, 1), "saturated": True}),
    "3x3 3 relu6 in registers": ((24, 23, 3, 8), {"padding": SAME3, "activation": graphs.RELU6}),
    "3x3 2 in registers, saturated": ((19, 21, 2, 15), {"padding": SAME3, "saturated": True}),
    # blocks of 4 channels alone, or eight that are fewer
    "1x1 64 relu, 20 channels": (
        (3, 3, 64, 20),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT},
    ),
    "1x1 64, 3 channels": ((3, 3, 64, 3), {"kernel": (1, 1)}),
    "1x1 112 relu6, 9 channels": ((3, 2, 112, 9), {"kernel": (1, 1), "activation": graphs.RELU6}),
    "3x3 16 relu, 14 channels": (
        (5, 4, 16, 14),
        {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT, "saturated": True},
    ),
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
@pytest.mark.always
def test_equals_the_reference() -> None:
    cases = [graphs.conv2d_graph(*CASES[c][0], seed=len(c), **CASES[c][1]) for c in CASES]
    check_all(cases, "cortex-m55", {"s8_conv2d__mve_2x4"}, runs=8)


@pytest.mark.slow
def test_large_biases() -> None:
    """Those that share no word with a shift are in blocks of four."""
    relu = {"activation": graphs.RELU, "out": graphs.int8_element(20.0, -128)}
    shapes = {"plain": {"out": graphs.int8_element(20.0, 1)}, "relu": relu}
    made = {}
    for name, keywords in shapes.items():
        graph = graphs.conv2d_graph(4, 5, 48, 11, (1, 1), **keywords)
        (bias,) = [value for value in graph.constants if value.type.dtype is DType.INT32]
        large = np.linspace(-(1 << 24), 1 << 24, 11).astype(np.int32)
        made[name] = replace(graph, constants={**graph.constants, bias: large})
    program, layers = compile_all(made, load("cortex-m55"))
    assert not any(dict(layer.call.function.spec)["eights"] for layer in layers.values())
    assert_exact(program, 4)


@pytest.mark.slow
def test_without_assembly() -> None:
    """All of it has the same in C."""
    names = [name for name in CASES if any(part in name for part in ("registers", "channels", "relu6"))]
    made = {name: graphs.conv2d_graph(*CASES[name][0], seed=2, **CASES[name][1]) for name in names}
    program, _ = compile_all(made, load("cortex-m55", "-DMF_NO_ASM"))
    assert_exact(program, 4)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_short_code(part: int) -> None:
    """Few layers at a time: all functions of a program are chosen together."""
    names = list(CASES)[part::3]
    made = {name: graphs.conv2d_graph(*CASES[name][0], seed=3, **CASES[name][1]) for name in names}
    program, layers = compile_all(made, load("cortex-m55"), Options(optimize="size"))
    specs = [dict(layer.call.function.spec) for layer in layers.values()]
    assert any(spec.get("small") for spec in specs)
    assert_exact(program, 4)


@pytest.mark.parametrize(("channels", "held", "order"), [
    (8, False, [0, 2, 4, 6, 1, 3, 5, 7]),
    (11, False, [0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, None]),
    (11, True, [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, None, None, 9, None, None, None]),
    (13, False, [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, None, 9, 11, None, None]),
])  # fmt: skip
def test_two_blocks_have_even_and_odd_channels(channels: int, held: bool, order: list[int | None]) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(-128, 128, (channels, 20)).astype(np.int8)
    records = _records(rng, channels)
    packed = mve.pack_eights(matrix, records, held=held)
    assert packed.dtype == np.int32
    if held:
        # The shifts of two blocks are in front of both.
        shifts = packed[:, :2].reshape(-1, 1)
        packed = np.concatenate([packed[:, 2:].reshape(len(order) // 4, -1), shifts], axis=1)
    assert packed.shape == (len(order) // 4, 2 * 16 + (9 if held else 8))
    weights = np.ascontiguousarray(packed[:, :32]).view(np.int8).reshape(-1, 2, 4, 16).swapaxes(1, 2)
    rows = _read_words(packed[:, 32:]) if held else _read_shared(packed[:, 32:])
    for place, channel in enumerate(order):
        found = weights.reshape(-1, 32)[place, :20], rows[place]
        wanted = (matrix[channel], records[channel]) if channel is not None else (0, 0)
        assert all(np.array_equal(a, np.broadcast_to(b, a.shape)) for a, b in zip(found, wanted, strict=True))


def test_blocks_hold_weights_and_records_in_reading_order() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(-128, 128, (7, 20)).astype(np.int8)
    records = _records(rng, 7)
    packed = mve.pack_blocks(matrix, records)
    assert packed.dtype == np.int32 and packed.shape == (2, 4 + 2 * 16 + 5)
    weights = np.ascontiguousarray(packed[:, 4:36]).view(np.int8).reshape(2, 2, 4, 16)
    unpacked = weights.swapaxes(1, 2).reshape(8, 32)
    assert np.array_equal(unpacked[:7, :20], matrix)
    assert not unpacked[7:].any() and not unpacked[:, 20:].any()
    assert np.array_equal(_read_words(np.delete(packed, range(4, 36), axis=1))[:7], records)


def test_biases_of_more_than_24_bits_share_no_words() -> None:
    records = np.array([[(1 << 23) - 1, 1 << 30, -3], [1 - (1 << 23), 1 << 30, -31]], np.int32)
    assert mve.unshared_biases(records) is None
    assert np.array_equal(
        _read_shared(mve.block_records(mve.pack_records(records)).reshape(1, -1))[:2], records
    )
    for bias in (1 << 23, -(1 << 23), -(1 << 31)):
        reason = mve.unshared_biases(np.array([[0, 1, 0], [bias, 1, 0]], np.int32))
        assert reason and str(abs(bias)) in reason


def _records(rng: np.random.Generator, channels: int) -> np.ndarray[Any, Any]:
    bounds = [(-(1 << 23) + 1, 1 << 23), (0, 1 << 31), (-31, 1)]
    return np.stack([rng.integers(*bound, channels) for bound in bounds], axis=1).astype(np.int32)


def _read_words(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[blocks * 4, 3] of what `block_words` made."""
    shifts = np.ascontiguousarray(words[:, 8:]).view(np.int8).astype(np.int32)
    return np.stack([words[:, :4], words[:, 4:8], shifts], axis=2).reshape(-1, 3)


def _read_shared(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[blocks * 4, 3] of rows of `pack_records`."""
    shifts = words[:, :4].astype(np.int8).astype(np.int32)
    return np.stack([words[:, :4] >> 8, words[:, 4:], shifts], axis=2).reshape(-1, 3)
