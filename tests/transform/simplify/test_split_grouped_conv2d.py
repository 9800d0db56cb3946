"""Groups of convolutions are computed apart where that takes fewer cycles."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.text import parse
from microfold.ir.types import Array
from microfold.kernels.selection.node_cost import NodeCosts
from microfold.kernels.selection.objective import Objective
from microfold.ops.convolution.conv2d import Conv2D
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.pipeline import optimize
from microfold.program import Program
from microfold.transform.simplify.split_grouped_conv2d import split_grouped_conv2d
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

BALANCED = Objective(cycles=3.0, flash=1.0, arena=1.0)
M4 = PassContext(node_cost=NodeCosts(target.load("cortex-m4"), BALANCED))
M55 = PassContext(
    channel_block=4,
    node_cost=NodeCosts(target.load("cortex-m55"), Objective(cycles=3.0, flash=1.0, arena=1.0)),
)
SAME = "{strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1))}"


def _weights(filters: int, size: int, depth: int, scales: str = "q(0.5, 0)") -> str:
    count = filters * size * size * depth
    elements = np.random.default_rng(count).integers(-90, 90, count).tolist()
    return f"int8[{filters},{size},{size},{depth}] {scales} {elements}"


def _dense(array: Array) -> str:
    return f"dense<{base64.b64encode(array.tobytes()).decode()}>"


def test_two_groups() -> None:
    array = np.random.default_rng(1).integers(-90, 90, (16, 3, 3, 8), np.int8)
    scales, biases = [0.5, 0.25] * 8, [*range(-8, 8)]
    check_rewrite(
        split_grouped_conv2d,
        f"""
        graph @g(%x: int8[1,2,2,16] q(0.1, 3)) -> (%y) {{
          %w = constant int8[16,3,3,8] q(axis=0, scales={scales}, zero_points=0) {_dense(array)}
          %b = constant int32[16] {biases}
          %y: int8[1,2,2,16] q(20.0, -5) = conv2d(%x, %w, %b) {SAME}
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,16] q(0.1, 3)) -> (%y) {{
          %x_part0: int8[1,2,2,8] q(0.1, 3) = strided_slice(%x) {_cut(0)}
          %w_0 = constant int8[8,3,3,8] q(axis=0, scales={scales[:8]}, zero_points=0) {_dense(array[:8])}
          %b_0 = constant int32[8] {biases[:8]}
          %y_part0: int8[1,2,2,8] q(20.0, -5) = conv2d(%x_part0, %w_0, %b_0) {SAME}
          %x_part1: int8[1,2,2,8] q(0.1, 3) = strided_slice(%x) {_cut(8)}
          %w_8 = constant int8[8,3,3,8] q(axis=0, scales={scales[8:]}, zero_points=0) {_dense(array[8:])}
          %b_8 = constant int32[8] {biases[8:]}
          %y_part1: int8[1,2,2,8] q(20.0, -5) = conv2d(%x_part1, %w_8, %b_8) {SAME}
          %y: int8[1,2,2,16] q(20.0, -5) = concatenate(%y_part0, %y_part1) {{axis=3}}
        }}
        """,
        M4,
    )


def _cut(channel: int) -> str:
    return f"{{begin=(0, 0, 0, {channel}), size=(1, 2, 2, 8), strides=(1, 1, 1, 1)}}"


@pytest.mark.parametrize(
    ("channels", "groups", "parts"),
    [(16, 4, 2), (32, 2, 2), (32, 4, 4), (32, 8, 4), (64, 8, 8)],
)
def test_the_number_of_parts_is_the_cheapest(channels: int, groups: int, parts: int) -> None:
    """As measured on Cortex-M4 with all divisors of the groups."""
    text = f"""
        graph @g(%x: int8[1,4,4,{channels}] q(0.05, 3)) -> (%y) {{
          %w = constant {_weights(channels, 3, channels // groups)}
          %y: int8[1,4,4,{channels}] q(9.0, 0) = conv2d(%x, %w) {SAME}
        }}
    """
    graph = parse(text)
    result = split_grouped_conv2d(graph, M4)
    assert sum(isinstance(node.op, Conv2D) for node in result.nodes) == parts
    assert split_grouped_conv2d(result, M4) is result
    assert_same_meaning(graph, result)


def test_small_groups_stay_together() -> None:
    text = f"""
        graph @g(%x: int8[1,2,2,4] q(0.1, 3)) -> (%y) {{
          %w = constant {_weights(4, 3, 2)}
          %y: int8[1,2,2,4] q(9.0, -5) = conv2d(%x, %w) {SAME}
        }}
    """
    check_declined(split_grouped_conv2d, text, "2 groups as one", M4)


def test_cores_with_vectors_keep_more_groups_together() -> None:
    text = f"""
        graph @g(%x: int8[1,4,4,16] q(0.1, 3)) -> (%y) {{
          %w = constant {_weights(16, 3, 4)}
          %y: int8[1,4,4,16] q(9.0, -5) = conv2d(%x, %w) {SAME}
        }}
    """
    check_declined(split_grouped_conv2d, text, "4 groups as one", M55)


@pytest.mark.slow
def test_a_limit_of_ram_that_parts_do_not_meet() -> None:
    """Parts live beside the image and the result; row by row they take less, one convolution least."""
    graph = parse(f"""
        graph @g(%x: int8[1,16,16,32] q(0.05, 3)) -> (%y) {{
          %w = constant {_weights(32, 3, 8)}
          %y: int8[1,16,16,32] q(9.0, 0) = conv2d(%x, %w) {SAME}
        }}
    """)
    core = target.load("cortex-m4")
    free = compile_graph(graph, core)
    whole = compile_graph(graph, core, context=PassContext(disabled_pass=["split_grouped_conv2d"]))
    assert whole.arena.size < free.arena.size
    assert _convolutions(compile_graph(graph, core, Options(ram=free.arena.size))) == 4
    decisions: list[Decision] = []
    told = PassContext(sink=decisions.append)
    by_rows = compile_graph(graph, core, Options(ram=whole.arena.size), context=told)
    assert _convolutions(by_rows) == 4
    assert by_rows.arena.size <= whole.arena.size
    assert not any("more RAM than is allowed" in decision.reason for decision in decisions)
    limited = compile_graph(graph, core, Options(ram=9_500), context=told)
    assert _convolutions(limited) == 1
    assert limited.arena.size <= 9_500
    assert any("4 parts would need more RAM than is allowed" in decision.reason for decision in decisions)


def _convolutions(program: Program) -> int:
    return sum(isinstance(node.op, Conv2D) for node in program.graph.nodes)


def test_groups_that_no_kernel_computes() -> None:
    """Sums of this bias leave the integers of every kernel."""
    text = f"""
        graph @g(%x: int16[1,2,2,6] q(0.1, 0)) -> (%y) {{
          %w = constant {_weights(8, 3, 3)}
          %b = constant int64[8] q(0.05, 0) {[-(1 << 56), *[0] * 7]}
          %y: int16[1,2,2,8] q(9.0, 0) = conv2d(%x, %w, %b) {SAME}
        }}
    """
    check_declined(split_grouped_conv2d, text, "2 groups as one: no kernel computes them", M4)


def test_groups_of_one_channel_are_depthwise() -> None:
    text = f"""
        graph @g(%x: int8[1,2,2,64] q(0.1, 3)) -> (%y) {{
          %w = constant {_weights(64, 3, 1)}
          %y: int8[1,2,2,64] q(9.0, -5) = conv2d(%x, %w) {SAME}
        }}
    """
    check_declined(split_grouped_conv2d, text, "depthwise", M4)


def test_groups_in_a_row_need_no_copies_between_them() -> None:
    """The parts of the first are the parts of the second, with the activation between them in each."""
    text = f"""
        graph @g(%x: int8[1,4,4,32] q(0.05, 3)) -> (%y) {{
          %w1 = constant {_weights(32, 3, 16)}
          %w2 = constant {_weights(32, 3, 16)}
          %a: int8[1,4,4,32] q(9.0, 0) = conv2d(%x, %w1) {SAME}
          %b: int8[1,4,4,32] q(9.0, 0) = clip(%a) {{minimum=0.0, maximum=inf}}
          %y: int8[1,4,4,32] q(900.0, 0) = conv2d(%b, %w2) {SAME}
        }}
    """
    graph = parse(text)
    result = optimize(graph, M4)
    assert [node.op.name for node in result.nodes].count("concatenate") == 1
    assert [node.op.name for node in result.nodes].count("strided_slice") == 2
    assert_same_meaning(graph, result)
