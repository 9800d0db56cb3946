"""Product sums whose outputs are looked up: the steps of an epilogue as one table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.options import Options
from tests.kernels.choice import candidates_of, prefer
from tests.kernels.cores import assert_chosen, assert_exact, compile_all, load
from tests.kernels.portable import check
from tests.needs import CROSS_TOOLS, need_tools

# Behind the sum, and the scale and zero point of what comes out.
EPILOGUES = {
    "leaky_relu": ("leaky_relu() {alpha=0.125}", "0.04, -60"),
    "negative_slope": ("leaky_relu() {alpha=-0.5}", "0.04, 12"),
    "hard_swish": ("hard_swish()", "0.04, -100"),
    "tanh": ("tanh()", "0.0078125, 0"),
    "clip_then_logistic": ("clip() {minimum=-1.0, maximum=2.0} | logistic()", "0.00390625, -128"),
    "tanh_then_clip": ("tanh() | clip() {minimum=-0.5, maximum=0.75}", "0.0078125, 0"),
}
SUM = "out=int8 q(0.05, -20)"


def _constants(weights: str, channels: int, axis: int, scale: float) -> str:
    rng = np.random.default_rng(7)
    size = int(np.prod([int(n) for n in weights.split(",")]))
    scales = [round(scale * (1 + 0.25 * (c % 3)), 6) for c in range(channels)]
    return f"""
        %w = constant int8[{weights}] q(axis={axis}, scales={scales}, zero_points=0) {rng.integers(-127, 128, size).tolist()}
        %b = constant int32[{channels}] {rng.integers(-2000, 2000, channels).tolist()}
    """  # noqa: E501


def conv2d(epilogue: str, inputs: int = 5, channels: int = 7, side: int = 7) -> Graph:
    """Some pixels are left over behind each group of four, and a channel."""
    step, kind = EPILOGUES[epilogue]
    return parse(f"""
        graph @g(%x: int8[1,{side},{side},{inputs}] q(0.05, 3)) -> (%y) {{
          {_constants(f"{channels},3,3,{inputs}", channels, 0, 0.007)}
          %y: int8[1,{side},{side},{channels}] q({kind}) = conv2d(%x, %w, %b) {{
            strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1)), {SUM}
          }} | {step}
        }}
    """)


def wide_conv2d(epilogue: str) -> Graph:
    return conv2d(epilogue, 8, 9)


def large_conv2d(epilogue: str) -> Graph:
    return conv2d(epilogue, side=21)


def depthwise(epilogue: str) -> Graph:
    step, kind = EPILOGUES[epilogue]
    return parse(f"""
        graph @g(%x: int8[1,9,11,8] q(0.05, 3)) -> (%y) {{
          {_constants("1,3,3,8", 8, 3, 0.02)}
          %y: int8[1,9,11,8] q({kind}) = depthwise_conv2d(%x, %w, %b) {{
            strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1)), {SUM}
          }} | {step}
        }}
    """)


def fully_connected(epilogue: str, units: int = 13) -> Graph:
    step, kind = EPILOGUES[epilogue]
    return parse(f"""
        graph @g(%x: int8[3,21] q(0.05, 3)) -> (%y) {{
          {_constants(f"{units},21", units, 0, 0.01)}
          %y: int8[3,{units}] q({kind}) = fully_connected(%x, %w, %b) {{{SUM}}} | {step}
        }}
    """)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("layer", [conv2d, depthwise, fully_connected])
def test_portable(layer: Callable[[str], Graph], epilogue: str) -> None:
    check(layer(epilogue))


# A graph that the kernel computes, with some of the epilogues, by kernel.
CASES = {
    "cortex-m4": {
        "s8_conv2d__dsp_4x2": conv2d,
        "s8_conv2d__dsp_fpu": large_conv2d,
        "s8_conv2d__dsp_tile": wide_conv2d,
        "s8_conv2d__dsp_winograd_2x2": wide_conv2d,
        "s8_conv2d__dsp_winograd_4x4": wide_conv2d,
        "s8_depthwise_conv2d__dsp_plane": depthwise,
        "s8_depthwise_conv2d__dsp_row": depthwise,
        "s8_fully_connected__dsp_8": fully_connected,
        "s8_fully_connected__dsp_2": fully_connected,
    },
    "cortex-m33": {
        "s8_conv2d__dsp_winograd_4x4": wide_conv2d,
        "s8_fully_connected__dsp_8": fully_connected,
    },
    "cortex-m3": {"s8_conv2d__thumb2_4x1": conv2d},
    "cortex-m0plus": {
        "s8_conv2d__thumb1_4x1": conv2d,
        "s8_depthwise_conv2d__thumb1_pairs": depthwise,
    },
}


@pytest.mark.parametrize("flag", ["", pytest.param("-DMF_NO_ASM", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("core", "kernel"), [(core, name) for core, names in CASES.items() for name in names]
)
def test_on_cores(core: str, kernel: str, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    prefer(monkeypatch, kernel)
    graphs = {name: CASES[core][kernel](name) for name in EPILOGUES}
    wanted = {name: {"table": True} for name in graphs}
    program, layers = compile_all(graphs, load(core, *flag.split()), Options(optimize="speed"), wanted)
    assert_chosen(layers, kernel, wanted)
    assert_exact(program, 6)


@pytest.mark.parametrize(
    ("core", "kernel"), [("cortex-m7", "s8_conv2d__dsp_4x2"), ("cortex-m55", "s8_conv2d__mve")]
)
def test_kernels_without_tables_refuse(core: str, kernel: str) -> None:
    refusals = {c.kernel.name: c.reason for c in candidates_of(conv2d("tanh"), core)}
    assert "it cannot fuse tanh" in (next(r for k, r in refusals.items() if k.startswith(kernel)) or "")
