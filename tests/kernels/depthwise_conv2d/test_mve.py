"""Depthwise convolution for Helium, on the simulated core, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.ir.graph import Graph
from microfold.ir.types import DType
from microfold.kernels.depthwise_conv2d.mve_tile import DepthwiseConv2DMveTile
from microfold.kernels.packing import mve
from tests.codegen.builds import STRICT, write_sources
from tests.codegen.matrix import arm_headers, compile_objects
from tests.kernels import graphs
from tests.kernels.choice import layer_of, prefer
from tests.kernels.cores import assert_exact, check_all, compile_all, load
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import quick

pytestmark = pytest.mark.needs(*CROSS_TOOLS)

SAME3 = ((1, 1), (1, 1))
RELU_OUT = graphs.int8_element(0.05, -128)

TILE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "3x3 relu": ((8, 8, 16), {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT}),
    "3x3 relu saturated": (
        (6, 12, 19),
        {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT, "saturated": True},
    ),
    "2x2 relu": (
        (9, 16, 7),
        {
            "kernel": (2, 2),
            "padding": ((1, 0), (0, 1)),
            "batch": 2,
            "activation": graphs.RELU,
            "out": RELU_OUT,
        },
    ),
    "3x3 odd height": ((7, 6, 20), {"padding": SAME3}),
    "3x3 saturated": ((6, 8, 16), {"padding": SAME3, "activation": graphs.RELU6, "saturated": True}),
    "3x3 batch 2": ((5, 12, 19), {"padding": ((1, 0), (0, 2)), "batch": 2}),
    "2x2": ((9, 8, 17), {"kernel": (2, 2), "padding": ((1, 0), (0, 1)), "batch": 2}),
    "3x1": ((30, 1, 40), {"kernel": (3, 1)}),
    "5x1": ((9, 2, 24), {"kernel": (5, 1), "padding": ((2, 2), (0, 0))}),
    "10x1": ((24, 1, 33), {"kernel": (10, 1)}),
    "3x1 stride 2": ((13, 1, 36), {"kernel": (3, 1), "strides": (2, 1)}),
    "3x1 dilation 2": ((13, 1, 36), {"kernel": (3, 1), "dilations": (2, 1), "per_channel": False}),
    "1x1": ((4, 8, 33), {"kernel": (1, 1), "bias": False}),
    # The last tile of a row covers some of the one before.
    "3x3 odd width": ((5, 5, 64), {"padding": SAME3}),
    "3x3 width 3": ((6, 3, 19), {"padding": SAME3, "batch": 2}),
    "3x3 odd width relu": (
        (7, 9, 21),
        {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT, "batch": 2},
    ),
    "3x3 odd width saturated": (
        (6, 7, 16),
        {"padding": SAME3, "activation": graphs.RELU6, "saturated": True},
    ),
    "3x3 width and height 3": ((3, 3, 9), {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT}),
    "2x2 stride 2": ((6, 7, 20), {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 1))}),
    "2x2 stride 2, odd width": ((10, 10, 20), {"kernel": (2, 2), "strides": (2, 2)}),
    "1x2 stride 1x2": ((4, 14, 12), {"kernel": (1, 2), "strides": (1, 2)}),
    "1x1 of one row, odd width": ((1, 7, 10), {"kernel": (1, 1)}),
    "1x1 of one row, 6 wide": ((1, 6, 10), {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT}),
}
LANES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "3x3 stride 2": (
        (12, 12, 32),
        {"padding": ((0, 1), (0, 1)), "strides": (2, 2), "activation": graphs.RELU, "out": RELU_OUT},
    ),
    "3x3 odd width": ((5, 5, 64), {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT}),
    "3x3 width 1": ((6, 1, 36), {"padding": SAME3}),
    "3x3 channel tail": ((5, 3, 39), {"padding": SAME3, "batch": 2}),
    "3x3 saturated": ((5, 5, 32), {"padding": SAME3, "saturated": True}),
    "3x3 dilation 2x3": ((9, 10, 36), {"dilations": (2, 3), "padding": ((2, 2), (1, 3))}),
    "5x5": ((7, 7, 32), {"kernel": (5, 5), "padding": ((2, 2), (2, 2)), "activation": graphs.RELU6}),
    "15x1": ((15, 1, 44), {"kernel": (15, 1)}),
    "multipliers above one": ((4, 5, 32), {"padding": SAME3, "out": graphs.int8_element(0.0004, 3)}),
    "large padding": ((2, 3, 36), {"padding": ((4, 4), (5, 5))}),
    # A band serves several rows of outputs, three and two; some are left.
    "2x3 relu": ((6, 7, 36), {"kernel": (2, 3), "activation": graphs.RELU, "out": RELU_OUT, "batch": 2}),
    "2x3 stride 2x1 relu": (
        (10, 7, 40),
        {"kernel": (2, 3), "strides": (2, 1), "activation": graphs.RELU, "out": RELU_OUT},
    ),
}


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize(
    ("cases", "kernel"), [(TILE, "s8_depthwise_conv2d__mve_tile"), (LANES, "s8_depthwise_conv2d__mve_4")]
)
def test_equals_the_reference(
    cases: dict[str, tuple[tuple[Any, ...], dict[str, Any]]], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, kernel)
    made = [graphs.depthwise_conv2d_graph(*cases[c][0], seed=len(c), **cases[c][1]) for c in cases]
    check_all(made, "cortex-m55", {kernel}, runs=8)


OTHERS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "multiplier 3": (
        (9, 8, 5),
        {"kernel": (5, 4), "multiplier": 3, "strides": (2, 1), "padding": ((1, 2), (3, 0))},
    ),
    "multiplier 8": (
        (20, 17, 1),
        {"kernel": (10, 8), "multiplier": 8, "strides": (2, 2), "padding": ((4, 5), (3, 3))},
    ),
    "one channel": ((5, 4, 1), {"padding": SAME3}),
    "two channels": ((4, 4, 2), {"kernel": (3, 2), "padding": ((1, 0), (0, 1)), "batch": 2}),
}


def test_selected_kernels_equal_the_reference() -> None:
    cases = {
        name: graphs.depthwise_conv2d_graph(*shape, seed=1, **options)
        for name, (shape, options) in OTHERS.items()
    }
    program, layers = compile_all(cases, target.load("cortex-m55"))
    assert all(layer.kernel.name.startswith("s8_depthwise_conv2d__") for layer in layers.values())
    assert_exact(program, 8)


# Of a row, one output or two at least, and more; all of them saturate.
PIPELINED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "one column": ((6, 1, 36), {"padding": SAME3}),
    "lanes": ((5, 5, 24), {"padding": SAME3}),
    "lanes, stride 2": ((9, 14, 20), {"padding": ((0, 1), (0, 1)), "strides": (2, 2)}),
    "one tile": ((9, 2, 21), {"padding": SAME3}),
    "one column of tiles, stride 2": ((13, 1, 36), {"kernel": (3, 1), "strides": (2, 1)}),
    "one tile, few channels": ((5, 2, 5), {"kernel": (2, 2), "padding": ((1, 0), (0, 1))}),
    "two tiles": ((4, 4, 7), {"padding": SAME3}),
    "tiles": ((7, 12, 9), {"kernel": (2, 2), "padding": ((1, 0), (0, 1)), "batch": 2}),
    "tiles of odd rows": ((6, 9, 9), {"padding": SAME3}),
    "two tiles over each other": ((5, 3, 7), {"padding": SAME3, "batch": 2}),
    "four columns over each other": ((1, 7, 6), {"kernel": (1, 1)}),
}


def _relu() -> dict[str, Graph]:
    options = {"activation": graphs.RELU, "out": RELU_OUT}
    return {
        name: graphs.depthwise_conv2d_graph(*shape, seed=3, **more, **options)
        for name, (shape, more) in PIPELINED.items()
    }


@pytest.mark.parametrize("flags", quick([(), ("-DMF_NO_ASM",), ("-fno-omit-frame-pointer",)]))
def test_sums_beside_requantisation(flags: tuple[str, ...]) -> None:
    wanted = {name: {"pipelined": True} for name in _relu()}
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, "s8_depthwise_conv2d__mve_4")
        program, layers = compile_all(_relu(), load("cortex-m55", *flags), None, wanted)
    assert any(dict(layer.call.function.spec).get("pipelined") for layer in layers.values())
    assert_exact(program, 8)


@pytest.mark.slow
def test_clang_takes_the_c(tmp_path: Path) -> None:
    """Compile with Clang as it hung on the assembly, for want of registers."""
    need_tools("clang")
    core = load("cortex-m55")
    program, _ = compile_all(_relu(), core)
    command = ("clang", "--target=arm-none-eabi", *arm_headers(), *core.cpu_flags, *STRICT)
    sources = write_sources(program, tmp_path)
    assert not compile_objects((*command, "-O1", "-fomit-frame-pointer"), sources, tmp_path)


def test_biases_beside_shifts_have_24_bits() -> None:
    graph = graphs.depthwise_conv2d_graph(4, 4, 8, padding=SAME3)
    (bias,) = [value for value in graph.constants if value.type.dtype is DType.INT32]

    def refused(largest: int) -> str | None:
        constants = {**graph.constants, bias: np.full(8, largest, np.int32)}
        layer = layer_of(replace(graph, constants=constants), "cortex-m55")
        return DepthwiseConv2DMveTile().supports(layer)

    # The input's zero point adds less than 2^12 to it.
    assert refused((1 << 23) - (1 << 12)) is None and refused(-(1 << 23) + (1 << 12)) is None
    for largest in ((1 << 23) + (1 << 12), -(1 << 23) - (1 << 12), 1 << 30):
        assert "below 2^23" in (refused(largest) or "")


def test_records_of_tiles() -> None:
    records = np.array(
        [[-5, 1 << 30, -7], [(1 << 23) - 1, (1 << 31) - 1, 0], [-(1 << 23) + 1, 3, -31]], np.int32
    )
    packed = mve.pack_records(records)
    assert packed.dtype == np.int32
    assert np.array_equal(packed[:, 0] >> 8, records[:, 0])
    assert np.array_equal(packed[:, 0].astype(np.int8), records[:, 2])
    assert np.array_equal(packed[:, 1], records[:, 1])
