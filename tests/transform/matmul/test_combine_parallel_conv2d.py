"""Convolutions of one image become one, where the slices cost less than they save."""

from __future__ import annotations

from functools import partial
from textwrap import dedent

import pytest

from microfold.errors import InputError
from microfold.ir.text import parse
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.passes.context import PassContext
from microfold.transform.matmul.combine_parallel_conv2d import CombineParallelConv2D
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

always = CombineParallelConv2D(slice=-1.0, byte=0.0)
combine = CombineParallelConv2D()
WINDOW = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"


def test_scales_biases_and_clips() -> None:
    check_rewrite(
        always,
        f"""
        graph @g(%x: int8[1,2,2,2] q(0.1, 3)) -> (%a, %z) {{
          %v = constant int8[1,1,1,2] q(0.5, 0) [1, 2]
          %a: int8[1,2,2,1] q(0.2, -5) = conv2d(%x, %v) {WINDOW}
          %w = constant int8[2,1,1,2] q(axis=0, scales=[0.1, 0.2], zero_points=0) [3, 4, 5, 6]
          %b = constant int32[2] [10, 20]
          %z: int8[1,2,2,2] q(0.2, -5) = conv2d(%x, %w, %b) {WINDOW}
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,2] q(0.1, 3)) -> (%a, %z) {{
          %a_combined_weights = constant int8[3,1,1,2] q(axis=0, scales=[0.5, 0.1, 0.2], zero_points=0) [1, 2, 3, 4, 5, 6]
          %a_combined_bias = constant int32[3] [0, 10, 20]
          %a_combined: int8[1,2,2,3] q(0.2, -5) = conv2d(%x, %a_combined_weights, %a_combined_bias) {WINDOW}
          %a: int8[1,2,2,1] q(0.2, -5) = strided_slice(%a_combined) {{begin=(0, 0, 0, 0), size=(1, 2, 2, 1), strides=(1, 1, 1, 1)}}
          %z: int8[1,2,2,2] q(0.2, -5) = strided_slice(%a_combined) {{begin=(0, 0, 0, 1), size=(1, 2, 2, 2), strides=(1, 1, 1, 1)}}
        }}
        """,  # noqa: E501
    )


@pytest.mark.parametrize("same", [True, False])
def test_clips_stay_behind_their_convolution(same: bool) -> None:
    before = parse(
        f"""
        graph @g(%x: float32[1,2,2,2]) -> (%y, %z) {{
          %v = constant float32[1,1,1,2] [1.0, 2.0]
          %a: float32[1,2,2,1] = conv2d(%x, %v) {WINDOW}
          %y: float32[1,2,2,1] = clip(%a) {{minimum=0.0, maximum=6.0}}
          %w = constant float32[1,1,1,2] [3.0, 4.0]
          %b: float32[1,2,2,1] = conv2d(%x, %w) {WINDOW}
          %z: float32[1,2,2,1] = clip(%b) {{minimum={0.0 if same else -1.0}, maximum=6.0}}
        }}
        """
    )
    after = always(before)
    kinds = [type(node.op) for node in after.nodes]
    assert kinds.count(Conv2D) == kinds.count(Clip) == (1 if same else 2)
    assert_same_meaning(before, after)
    assert always(after) is after


@pytest.mark.parametrize(
    ("size", "channels", "filters", "block", "pays"),
    [
        (3, 16, (8, 8), 1, True),
        (3, 16, (8, 8), 4, True),
        (3, 2, (8, 8), 1, False),
        (1, 64, (3, 5), 4, True),
        (1, 64, (3, 5), 1, False),
        (1, 64, (4, 4), 4, False),
    ],
)
def test_the_rule(size: int, channels: int, filters: tuple[int, int], block: int, pays: bool) -> None:
    def weights(count: int) -> str:
        return ", ".join(str(i % 5 - 2) for i in range(size * size * count * channels))

    rest = 9 - size
    graph = parse(
        f"""
        graph @g(%x: int8[1,8,8,{channels}] q(0.1, 3)) -> (%y, %z) {{
          %v = constant int8[{filters[0]},{size},{size},{channels}] q(0.5, 0) [{weights(filters[0])}]
          %w = constant int8[{filters[1]},{size},{size},{channels}] q(0.25, 0) [{weights(filters[1])}]
          %y: int8[1,{rest},{rest},{filters[0]}] q(2.0, -5) = conv2d(%x, %v) {WINDOW}
          %z: int8[1,{rest},{rest},{filters[1]}] q(2.0, -5) = conv2d(%x, %w) {WINDOW}
        }}
        """
    )
    decisions = []
    after = combine(graph, PassContext(channel_block=block, sink=decisions.append))
    assert (after is not graph) == pays
    assert [d.fired for d in decisions] == [pays]
    assert_same_meaning(graph, after)


@pytest.mark.parametrize(
    ("second", "quant"),
    [
        ("conv2d(%x, %w) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}", "q(3.0, -5)"),
        ("conv2d(%x, %w) {strides=(1, 1), dilations=(1, 2), padding=((0, 0), (0, 0))}", "q(2.0, -5)"),
        ("conv2d(%u, %w) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}", "q(2.0, -5)"),
    ],
)
def test_not_parallel(second: str, quant: str) -> None:
    check_declined(
        always,
        f"""
        graph @g(%x: int8[1,2,2,2] q(0.1, 3), %u: int8[1,2,2,2] q(0.1, 3)) -> (%y, %z) {{
          %v = constant int8[1,1,1,2] q(0.5, 0) [1, 2]
          %w = constant int8[1,1,1,2] q(0.5, 0) [3, 4]
          %y: int8[1,2,2,1] q(2.0, -5) = conv2d(%x, %v) {WINDOW}
          %z: int8[1,2,2,1] {quant} = {second}
        }}
        """,
    )


def test_conditions_of_the_caller() -> None:
    text = f"""
        graph @g(%x: int8[1,2,2,2] q(0.1, 3)) -> (%y, %z) {{
          %v = constant int8[1,1,1,2] q(0.5, 0) [1, 2]
          %w = constant int8[1,1,1,2] q(0.5, 0) [3, 4]
          %y: int8[1,2,2,1] q(2.0, -5) = conv2d(%x, %v) {WINDOW}
          %z: int8[1,2,2,1] q(2.0, -5) = conv2d(%x, %w) {WINDOW}
        }}
        """
    step = partial(CombineParallelConv2D, slice=-1.0, byte=0.0)
    assert len(step(check=lambda nodes: len(nodes) == 2)(parse(dedent(text))).nodes) == 3
    check_declined(step(min_num_branches=3), text, "at least 3 branches are required; found 2")
    check_declined(step(check=lambda _: "they are mine"), text, "they are mine")
    check_declined(step(check=lambda _: False), text, "the check rejects them")
    with pytest.raises(InputError, match="min_num_branches must be at least 2; got 1"):
        step(min_num_branches=1)(parse(dedent(text)))
