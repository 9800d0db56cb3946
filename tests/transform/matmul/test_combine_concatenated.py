"""Layers whose results are concatenated become one."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.text import parse
from microfold.transform.matmul.combine_concatenated import combine_concatenated
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

WINDOW = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"


def test_scales_biases_and_clips() -> None:
    check_rewrite(
        combine_concatenated,
        f"""
        graph @g(%x: int8[1,2,2,2] q(0.1, 3)) -> (%y) {{
          %v = constant int8[1,1,1,2] q(0.5, 0) [1, 2]
          %a: int8[1,2,2,1] q(0.2, -5) = conv2d(%x, %v) {WINDOW}
          %c: int8[1,2,2,1] q(0.2, -5) = clip(%a) {{minimum=0.0, maximum=6.0}}
          %w = constant int8[2,1,1,2] q(axis=0, scales=[0.1, 0.2], zero_points=0) [3, 4, 5, 6]
          %b = constant int32[2] [10, 20]
          %z: int8[1,2,2,2] q(0.2, -5) = conv2d(%x, %w, %b) {WINDOW}
          %d: int8[1,2,2,2] q(0.2, -5) = clip(%z) {{minimum=0.0, maximum=6.0}}
          %y: int8[1,2,2,3] q(0.2, -5) = concatenate(%c, %d) {{axis=3}}
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,2] q(0.1, 3)) -> (%y#1) {{
          %y_weights = constant int8[3,1,1,2] q(axis=0, scales=[0.5, 0.1, 0.2], zero_points=0) [1, 2, 3, 4, 5, 6]
          %y_bias = constant int32[3] [0, 10, 20]
          %y: int8[1,2,2,3] q(0.2, -5) = conv2d(%x, %y_weights, %y_bias) {WINDOW}
          %y#1: int8[1,2,2,3] q(0.2, -5) = clip(%y) {{minimum=0.0, maximum=6.0}}
        }}
        """,  # noqa: E501
    )


def test_through_reshapes() -> None:
    """Dense layers over the steps of a sequence, as converters write them."""
    check_rewrite(
        combine_concatenated,
        """
        graph @g(%x: float32[4,2]) -> (%y) {
          %v = constant float32[1,2] [1.0, 2.0]
          %a: float32[4,1] = fully_connected(%x, %v)
          %c: float32[4,1] = clip(%a) {minimum=0.0, maximum=6.0}
          %r: float32[1,4,1] = reshape(%c) {shape=(1, 4, 1)}
          %w = constant float32[2,2] [3.0, 4.0, 5.0, 6.0]
          %b: float32[4,2] = fully_connected(%x, %w)
          %d: float32[4,2] = clip(%b) {minimum=0.0, maximum=6.0}
          %s: float32[1,4,2] = reshape(%d) {shape=(1, 4, 2)}
          %y: float32[1,4,3] = concatenate(%r, %s) {axis=2}
        }
        """,
        """
        graph @g(%x: float32[4,2]) -> (%y#2) {
          %y_weights = constant float32[3,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
          %y: float32[4,3] = fully_connected(%x, %y_weights)
          %y#1: float32[4,3] = clip(%y) {minimum=0.0, maximum=6.0}
          %y#2: float32[1,4,3] = reshape(%y#1) {shape=(1, 4, 3)}
        }
        """,
    )


@pytest.mark.parametrize("shape", ["2,2", "4,1"])
def test_reshapes_that_take_channels_apart(shape: str) -> None:
    first, second = shape.split(",")
    both = f"{first},{2 * int(second)}"
    check_declined(
        combine_concatenated,
        f"""
        graph @g(%x: float32[1,2]) -> (%y) {{
          %v = constant float32[4,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
          %a: float32[1,4] = fully_connected(%x, %v)
          %r: float32[{shape}] = reshape(%a) {{shape=({first}, {second})}}
          %w = constant float32[4,2] [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
          %b: float32[1,4] = fully_connected(%x, %w)
          %s: float32[{shape}] = reshape(%b) {{shape=({first}, {second})}}
          %y: float32[{both}] = concatenate(%r, %s) {{axis=1}}
        }}
        """,
    )


def test_only_neighbours_go_together() -> None:
    before = parse(
        f"""
        graph @g(%x: float32[1,2,2,2], %o: float32[1,2,2,1]) -> (%y) {{
          %v = constant float32[1,1,1,2] [1.0, 2.0]
          %w = constant float32[1,1,1,2] [3.0, 4.0]
          %a: float32[1,2,2,1] = conv2d(%x, %v) {WINDOW}
          %b: float32[1,2,2,1] = conv2d(%x, %w) {WINDOW}
          %c: float32[1,2,2,1] = conv2d(%x, %w) {WINDOW}
          %y: float32[1,2,2,4] = concatenate(%a, %b, %o, %c) {{axis=3}}
        }}
        """
    )
    after = combine_concatenated(before)
    assert [node.op.name for node in after.nodes] == ["conv2d", "conv2d", "concatenate"]
    assert_same_meaning(before, after)
    assert combine_concatenated(after) is after


def test_any_scales_keep_the_bits() -> None:
    """One scale for all weights of a layer, and of several layers one for each channel, requantise alike."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        scales = np.exp(rng.uniform(-9, -1, 3)).astype(np.float32).tolist()
        lines = [
            f"""
            %w{i} = constant int8[3,8] q({scale!r}, 0) {rng.integers(-127, 128, 24).tolist()}
            %b{i} = constant int32[3] {rng.integers(-5000, 5000, 3).tolist()}
            %v{i}: int8[16,3] q(0.37, -5) = fully_connected(%x, %w{i}, %b{i})
            """
            for i, scale in enumerate(scales)
        ]
        before = parse(
            f"""
            graph @g(%x: int8[16,8] q(0.1, 3)) -> (%y) {{
              {"".join(lines)}
              %y: int8[16,9] q(0.37, -5) = concatenate(%v0, %v1, %v2) {{axis=1}}
            }}
            """
        )
        after = combine_concatenated(before)
        assert len(after.nodes) == 1
        assert_same_meaning(before, after)


@pytest.mark.parametrize(
    "lines",
    [
        "%y: float32[1,2,4,1] = concatenate(%a, %b) {axis=2}",
        "%y: float32[1,2,2,2] = concatenate(%a, %b) {axis=3} %t: float32[1,2,2,1] = tanh(%a)",
        "%y: float32[1,2,2,2] = concatenate(%a, %c) {axis=3}",
        "%d: float32[1,2,2,1] = clip(%b) {minimum=0.0, maximum=6.0}"
        " %y: float32[1,2,2,2] = concatenate(%a, %d) {axis=3}",
    ],
)
def test_declined(lines: str) -> None:
    others = ", %t" if "%t" in lines else ""
    check_declined(
        combine_concatenated,
        f"""
        graph @g(%x: float32[1,2,2,2], %z: float32[1,2,2,2]) -> (%y{others}) {{
          %v = constant float32[1,1,1,2] [1.0, 2.0]
          %w = constant float32[1,1,1,2] [3.0, 4.0]
          %a: float32[1,2,2,1] = conv2d(%x, %v) {WINDOW}
          %b: float32[1,2,2,1] = conv2d(%x, %w) {WINDOW}
          %c: float32[1,2,2,1] = conv2d(%z, %w) {WINDOW}
          {lines}
        }}
        """,
    )
