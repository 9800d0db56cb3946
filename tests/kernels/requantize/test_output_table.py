"""Product sums whose outputs are looked up: clips, activations and changes of scale of an epilogue, as one table."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.kernels.requantize import output_table
from microfold.simulate.toolchain import missing_tools
from tests.kernels.cores import KEEP_OPERATORS, assert_exact
from tests.kernels.portable import check

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


def conv2d(epilogue: str, window: int = 1, channels: int = 6) -> Graph:
    """On 7x7 pixels of 5 channels: some are left over behind each group of four."""
    step, kind = EPILOGUES[epilogue]
    pad, edge = ("1, 1" if window == 3 else "0, 0"), 7
    return parse(f"""
        graph @g(%x: int8[1,7,7,5] q(0.05, 3)) -> (%y) {{
          {_constants(f"{channels},{window},{window},5", channels, 0, 0.02 / window)}
          %y: int8[1,{edge},{edge},{channels}] q({kind}) = conv2d(%x, %w, %b) {{
            strides=(1, 1), dilations=(1, 1), padding=(({pad}), ({pad})), {SUM}
          }} | {step}
        }}
    """)


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
def test_portable(layer, epilogue: str) -> None:
    check(layer(epilogue))
