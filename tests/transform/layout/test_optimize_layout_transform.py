from __future__ import annotations

from textwrap import dedent

import pytest

from microfold.ir.graph import Graph, verify
from microfold.ir.text import parse
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.transform.layout.convert_layout import ConvertLayout
from microfold.transform.layout.optimize_layout_transform import optimize_layout_transform
from microfold.transform.layout.propagation.cost import movement_cost
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

TO_NCHW, TO_NHWC = "{permutation=(0, 3, 1, 2)}", "{permutation=(0, 2, 3, 1)}"
CONV = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"
POOL = "{size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}"


def test_transposes_cancel() -> None:
    check_rewrite(
        optimize_layout_transform,
        f"""\
        graph @g(%x: int8[1,4,4,8] q(0.5, 0)) -> (%y) {{
          %t: int8[1,8,4,4] q(0.5, 0) = transpose(%x) {TO_NCHW}
          %c = constant int8[8,1,1] q(0.25, 0) [1, 2, 3, 4, 5, 6, 7, 8]
          %r: int8[1,8,4,4] q(0.5, 0) = add(%t, %c)
          %y: int8[1,4,4,8] q(0.5, 0) = transpose(%r) {TO_NHWC}
        }}
        """,
        """\
        graph @g(%x: int8[1,4,4,8] q(0.5, 0)) -> (%r) {
          %c = constant int8[1,1,1,8] q(0.25, 0) [1, 2, 3, 4, 5, 6, 7, 8]
          %r: int8[1,4,4,8] q(0.5, 0) = add(%x, %c)
        }
        """,
    )


def test_residuals_leave_one_at_each_end() -> None:
    """The skipped value is an input of the graph, and the result of an elementwise operator, in NCHW."""
    filters = "[1.0, 2.0, 3.0, 4.0]"
    check_rewrite(
        optimize_layout_transform,
        f"""\
        graph @g(%x: float32[1,2,4,4]) -> (%y) {{
          %a: float32[1,4,4,2] = transpose(%x) {TO_NHWC}
          %w = constant float32[2,1,1,2] {filters}
          %b: float32[1,4,4,2] = conv2d(%a, %w) {CONV}
          %c: float32[1,2,4,4] = transpose(%b) {TO_NCHW}
          %d: float32[1,2,4,4] = add(%c, %x)
          %e: float32[1,2,4,4] = clip(%d) {{minimum=0.0, maximum=inf}}
          %f: float32[1,4,4,2] = transpose(%e) {TO_NHWC}
          %g: float32[1,4,4,2] = conv2d(%f, %w) {CONV}
          %h: float32[1,2,4,4] = transpose(%g) {TO_NCHW}
          %y: float32[1,2,4,4] = add(%h, %e)
        }}
        """,
        f"""\
        graph @g(%x: float32[1,2,4,4]) -> (%y#1) {{
          %a: float32[1,4,4,2] = transpose(%x) {TO_NHWC}
          %w = constant float32[2,1,1,2] {filters}
          %b: float32[1,4,4,2] = conv2d(%a, %w) {CONV}
          %d: float32[1,4,4,2] = add(%b, %a)
          %e: float32[1,4,4,2] = clip(%d) {{minimum=0.0, maximum=inf}}
          %g: float32[1,4,4,2] = conv2d(%e, %w) {CONV}
          %y: float32[1,4,4,2] = add(%g, %e)
          %y#1: float32[1,2,4,4] = transpose(%y) {TO_NCHW}
        }}
        """,
    )


def test_weights_take_the_order_of_a_flattened_image() -> None:
    check_rewrite(
        optimize_layout_transform,
        f"""\
        graph @g(%x: int8[1,2,1,2] q(0.5, 0)) -> (%y) {{
          %t: int8[1,2,2,1] q(0.5, 0) = transpose(%x) {TO_NCHW}
          %r: int8[1,2,2,1] q(0.5, 0) = clip(%t) {{minimum=0.0, maximum=6.0}}
          %f: int8[1,4] q(0.5, 0) = reshape(%r) {{shape=(1, 4)}}
          %w = constant int8[2,4] q(axis=0, scales=[0.5, 0.25], zero_points=0) [1, 2, 3, 4, 5, 6, 7, 8]
          %y: int8[1,2] q(0.5, 0) = fully_connected(%f, %w)
        }}
        """,
        """\
        graph @g(%x: int8[1,2,1,2] q(0.5, 0)) -> (%y) {
          %r: int8[1,2,1,2] q(0.5, 0) = clip(%x) {minimum=0.0, maximum=6.0}
          %f: int8[1,4] q(0.5, 0) = reshape(%r) {shape=(1, 4)}
          %w = constant int8[2,4] q(axis=0, scales=[0.5, 0.25], zero_points=0) [1, 3, 2, 4, 5, 7, 6, 8]
          %y: int8[1,2] q(0.5, 0) = fully_connected(%f, %w)
        }
        """,
    )


def test_rows_of_a_transposed_operand_are_columns_of_an_image() -> None:
    check_rewrite(
        optimize_layout_transform,
        f"""\
        graph @g(%x: int8[1,4,2,2] q(0.5, 0)) -> (%y) {{
          %t: int8[1,2,4,2] q(0.5, 0) = transpose(%x) {TO_NCHW}
          %f: int8[2,8] q(0.5, 0) = reshape(%t) {{shape=(2, 8)}}
          %w = constant int8[1,8] q(0.5, 0) [1, 2, 3, 4, 5, 6, 7, 8]
          %y: int8[2,1] q(0.5, 0) = fully_connected(%f, %w)
        }}
        """,
        f"""\
        graph @g(%x: int8[1,4,2,2] q(0.5, 0)) -> (%y#1) {{
          %f: int8[1,8,2,1] q(0.5, 0) = reshape(%x) {{shape=(1, 8, 2, 1)}}
          %w = constant int8[1,8,1,1] q(0.5, 0) [1, 2, 3, 4, 5, 6, 7, 8]
          %y: int8[1,1,2,1] q(0.5, 0) = conv2d(%f, %w) {CONV}
          %y#1: int8[2,1] q(0.5, 0) = reshape(%y) {{shape=(2, 1)}}
        }}
        """,
    )


def test_a_channel_shuffle_goes_into_filters() -> None:
    check_rewrite(
        optimize_layout_transform,
        f"""\
        graph @g(%x: float32[1,2,2,4]) -> (%y) {{
          %a: float32[1,4,2,2] = transpose(%x) {TO_NCHW}
          %b: float32[1,2,2,2,2] = reshape(%a) {{shape=(1, 2, 2, 2, 2)}}
          %c: float32[1,2,2,2,2] = transpose(%b) {{permutation=(0, 2, 1, 3, 4)}}
          %d: float32[1,4,2,2] = reshape(%c) {{shape=(1, 4, 2, 2)}}
          %e: float32[1,2,2,4] = transpose(%d) {TO_NHWC}
          %k = constant float32[1,1,1,4] [1.0, 2.0, 3.0, 4.0]
          %l = constant float32[4] [5.0, 6.0, 7.0, 8.0]
          %f: float32[1,2,2,4] = depthwise_conv2d(%e, %k, %l) {CONV}
          %w = constant float32[1,1,1,4] [1.0, 2.0, 3.0, 4.0]
          %y: float32[1,2,2,1] = conv2d(%f, %w) {CONV}
        }}
        """,
        f"""\
        graph @g(%x: float32[1,2,2,4]) -> (%y) {{
          %k = constant float32[1,1,1,4] [1.0, 3.0, 2.0, 4.0]
          %l = constant float32[4] [5.0, 7.0, 6.0, 8.0]
          %f: float32[1,2,2,4] = depthwise_conv2d(%x, %k, %l) {CONV}
          %w = constant float32[1,1,1,4] [1.0, 3.0, 2.0, 4.0]
          %y: float32[1,2,2,1] = conv2d(%f, %w) {CONV}
        }}
        """,
        tolerance=1e-6,
    )


def test_towards_the_inputs_where_less_is_moved() -> None:
    check_rewrite(
        optimize_layout_transform,
        f"""\
        graph @g(%x: float32[1,3,4,4]) -> (%y) {{
          %a: float32[1,3,6,6] = pad(%x) {{padding=((0, 0), (0, 0), (1, 1), (1, 1)), fill=0.0}}
          %b: float32[1,6,6,3] = transpose(%a) {TO_NHWC}
          %y: float32[1,3,3,3] = max_pool2d(%b) {POOL}
        }}
        """,
        f"""\
        graph @g(%x: float32[1,3,4,4]) -> (%y) {{
          %x#1: float32[1,4,4,3] = transpose(%x) {TO_NHWC}
          %a: float32[1,6,6,3] = pad(%x#1) {{padding=((0, 0), (1, 1), (1, 1), (0, 0)), fill=0.0}}
          %y: float32[1,3,3,3] = max_pool2d(%a) {POOL}
        }}
        """,
    )


def test_sinks_behind_what_may_be_fused() -> None:
    check_rewrite(
        optimize_layout_transform,
        f"""\
        graph @g(%x: float32[1,4,4,2]) -> (%y) {{
          %a: float32[1,2,4,4] = transpose(%x) {TO_NCHW}
          %y: float32[1,2,4,4] = clip(%a) {{minimum=0.0, maximum=6.0}}
        }}
        """,
        f"""\
        graph @g(%x: float32[1,4,4,2]) -> (%y#1) {{
          %y: float32[1,4,4,2] = clip(%x) {{minimum=0.0, maximum=6.0}}
          %y#1: float32[1,2,4,4] = transpose(%y) {TO_NCHW}
        }}
        """,
    )


def optimized(text: str) -> Graph:
    """With the same meaning, and no more to do."""
    graph = parse(dedent(text))
    result = optimize_layout_transform(graph)
    verify(result)
    assert_same_meaning(graph, result, tolerance=1e-6)
    assert optimize_layout_transform(result) is result
    assert movement_cost(result) <= movement_cost(graph)
    return result


def turned_around(body: str, x: str = "float32[1,6,6,4]") -> str:
    """A graph of operators on %a, which is %x in NCHW."""
    nchw = "[1,4,6,6]" + x.partition("]")[2]
    return f"""graph @g(%x: {x}) -> (%y) {{
      %a: {x.partition("[")[0]}{nchw} = transpose(%x) {TO_NCHW}
      {body}
    }}"""


# What becomes of a value's transpose in front of these operators: none is left.
ABSORBING = {
    "prelu": """%s = constant float32[4,1,1] [1.0, 2.0, 3.0, 4.0]
      %b: float32[1,4,6,6] = prelu(%a, %s)
      %y: float32[1,6,6,4] = transpose(%b) {permutation=(0, 2, 3, 1)}""",
    "slices": """%b: float32[1,2,6,3] = strided_slice(%a) {begin=(0, 1, 0, 5), size=(1, 2, 6, 3), strides=(1, 1, 1, -2)}
      %y: float32[1,6,3,2] = transpose(%b) {permutation=(0, 2, 3, 1)}""",  # noqa: E501
    "pad": """%b: float32[1,7,6,8] = pad(%a) {padding=((0, 0), (1, 2), (0, 0), (2, 0)), fill=1.0}
      %y: float32[1,6,8,7] = transpose(%b) {permutation=(0, 2, 3, 1)}""",
    "concatenate": """%b: float32[1,8,6,6] = concatenate(%a, %a) {axis=1}
      %y: float32[1,6,6,8] = transpose(%b) {permutation=(0, 2, 3, 1)}""",
    "mean": """%y: float32[1,4] = mean(%a) {axes=(2, 3), keep_dims=false}""",
    "mean, kept": """%b: float32[1,4,1,6] = mean(%a) {axes=(2,), keep_dims=true}
      %y: float32[1,1,6,4] = transpose(%b) {permutation=(0, 2, 3, 1)}""",
    "arg_max": """%y: int32[1,6,6] = arg_max(%a) {axis=1, dtype=int32}""",
    "gather": """%i = constant int32[3] [3, 0, 1]
      %b: float32[1,3,6,6] = gather(%a, %i) {axis=1}
      %y: float32[1,6,6,3] = transpose(%b) {permutation=(0, 2, 3, 1)}""",
    "cumsum": """%b: float32[1,4,6,6] = cumsum(%a) {axis=2, exclusive=true, reverse=false}
      %y: float32[1,6,6,4] = transpose(%b) {permutation=(0, 2, 3, 1)}""",
    "quantize": """%b: int8[1,4,6,6] q(0.5, 3) = quantize(%a)
      %c: int8[1,4,6,6] q(0.25, 0) = requantize(%b)
      %d: float32[1,4,6,6] = dequantize(%c)
      %y: float32[1,6,6,4] = transpose(%d) {permutation=(0, 2, 3, 1)}""",
    "squeeze and excite": """%m: float32[1,4,1,1] = mean(%a) {axes=(2, 3), keep_dims=true}
      %s: float32[1,4,1,1] = logistic(%m)
      %p: float32[1,4,6,6] = mul(%a, %s)
      %y: float32[1,6,6,4] = transpose(%p) {permutation=(0, 2, 3, 1)}""",
    "compare and select": """%z = constant float32[] [0.0]
      %c: bool[1,4,6,6] = compare(%a, %z) {relation="less"}
      %b: float32[1,4,6,6] = select(%c, %z, %a)
      %y: float32[1,6,6,4] = transpose(%b) {permutation=(0, 2, 3, 1)}""",
    "softmax along the last axis": """%b: float32[1,6,6,4] = transpose(%a) {permutation=(0, 3, 2, 1)}
      %c: float32[1,6,6,4] = softmax(%b) {beta=1.0}
      %y: float32[1,6,6,4] = transpose(%c) {permutation=(0, 2, 1, 3)}""",
    "other orders of the same axes": """%b: float32[1,4,36] = reshape(%a) {shape=(1, 4, 36)}
      %c: float32[1,4,36] = logistic(%b)
      %d: float32[1,36,4] = transpose(%c) {permutation=(0, 2, 1)}
      %y: float32[1,6,6,4] = reshape(%d) {shape=(1, 6, 6, 4)}""",
    "changes of layout": """%b: float32[1,1,6,6,4] = layout_transform(%a) {source="NCHW", target="NCHW4c"}
      %c: float32[1,1,6,6,4] = logistic(%b)
      %y: float32[1,6,6,4] = layout_transform(%c) {source="NCHW4c", target="NHWC"}""",
}


@pytest.mark.parametrize("body", ABSORBING.values(), ids=ABSORBING)
def test_no_transpose_is_left(body: str) -> None:
    result = optimized(turned_around(body))
    assert not any(isinstance(node.op, Transpose) for node in result.nodes)


def test_several_readers_share_what_is_moved() -> None:
    result = optimized(f"""graph @g(%x: float32[1,4,6,6]) -> (%y, %z) {{
      %a: float32[1,6,6,4] = transpose(%x) {TO_NHWC}
      %y: float32[1,3,3,4] = max_pool2d(%a) {POOL}
      %l: float32[1,4,6,6] = logistic(%x)
      %t: float32[1,6,6,4] = transpose(%l) {TO_NHWC}
      %z: float32[1,3,3,4] = max_pool2d(%t) {POOL}
    }}""")
    assert movement_cost(result)[:3] == (144, 576, 1)


def test_an_output_keeps_its_order() -> None:
    """One branch leaves the graph as it was, the other cancels."""
    result = optimized(f"""graph @g(%x: float32[1,6,6,4], %z: float32[1,6,6,4]) -> (%y, %a) {{
      %a: float32[1,4,6,6] = transpose(%x) {TO_NCHW}
      %b: float32[1,4,6,6] = transpose(%z) {TO_NCHW}
      %c: float32[1,8,6,6] = concatenate(%a, %b) {{axis=1}}
      %y: float32[1,6,6,8] = transpose(%c) {TO_NHWC}
    }}""")
    assert movement_cost(result)[:3] == (144, 576, 1)


def test_states_keep_their_order() -> None:
    optimized(f"""graph @g(%x: float32[1,1,2,3]) -> (%y) {{
      state %s: float32[1,3,1,2] initial [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] next %n
      %t: float32[1,3,1,2] = transpose(%x) {TO_NCHW}
      %n: float32[1,3,1,2] = add(%t, %s)
      %y: float32[1,1,2,3] = transpose(%n) {TO_NHWC}
    }}""")


STUCK = {
    "softmax": (
        f"""%b: float32[1,4,6,6] = softmax(%a) {{beta=1.0}}
        %y: float32[1,6,6,4] = transpose(%b) {TO_NHWC}""",
        "it works along the last axis",
    ),
    "growth": (
        """%y: float32[1,4,9,6] = pad(%a) {padding=((0, 0), (0, 0), (3, 0), (0, 0)), fill=0.0}""",
        "its result is larger than its operand",
    ),
    "pool": (f"""%y: float32[1,2,3,6] = max_pool2d(%a) {POOL}""", "the image it reads is not NHWC"),
    "output": ("""%y: float32[1,4,6,6] = reshape(%a) {shape=(1, 4, 6, 6)}""", "its result leaves the graph"),
}


@pytest.mark.parametrize(("body", "reason"), STUCK.values(), ids=STUCK)
def test_where_it_stays(body: str, reason: str) -> None:
    check_declined(optimize_layout_transform, turned_around(body), reason)


def test_the_order_of_floating_point_sums() -> None:
    """Elements of a mean are added up in another order only if that is asked for."""
    text = turned_around("%y: float32[1,6] = mean(%a) {axes=(1, 2), keep_dims=false}")
    check_declined(optimize_layout_transform, text, "it would add up floats in another order")
    graph = parse(text)
    relaxed = optimize_layout_transform(graph, PassContext(numerics="relaxed"))
    assert movement_cost(relaxed)[2] == 0
    assert_same_meaning(graph, relaxed, tolerance=1e-6)
    exact = optimized(
        turned_around(
            "%y: int8[1,6] q(0.5, 0) = mean(%a) {axes=(1, 2), keep_dims=false}", "int8[1,6,6,4] q(0.5, 3)"
        )
    )
    assert movement_cost(exact)[2] == 0


def test_converted_operators_of_other_layouts() -> None:
    graph = parse(f"""graph @g(%x: float32[1,6,6,4]) -> (%y) {{
      %a: float32[1,4,6,6] = transpose(%x) {TO_NCHW}
      %b: float32[1,4,12,12] = resize_nearest_neighbor(%a) {{size=(12, 12), align_corners=false, half_pixel_centers=false, layout="NCHW"}}
      %y: float32[1,12,12,4] = transpose(%b) {TO_NHWC}
    }}""")  # noqa: E501
    result = optimize_layout_transform(ConvertLayout()(graph))
    assert movement_cost(result)[2] == 0
    assert_same_meaning(graph, result)
