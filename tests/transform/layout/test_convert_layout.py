from __future__ import annotations

import pytest

from microfold import target as targets
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.ir.text import parse
from microfold.ops.movement.transpose import Transpose
from microfold.transform.layout.convert_layout import ConvertLayout
from microfold.transform.layout.optimize_layout_transform import optimize_layout_transform
from tests.transform.check import check_declined, check_rewrite

POOL = "size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))"


def test_to_nhwc() -> None:
    check_rewrite(
        ConvertLayout(),
        f"""\
        graph @g(%x: int8[1,3,8,8] q(0.5, 0)) -> (%y) {{
          %y: int8[1,3,4,4] q(0.5, 0) = max_pool2d(%x) {{{POOL}, layout="NCHW"}}
        }}
        """,
        f"""\
        graph @g(%x: int8[1,3,8,8] q(0.5, 0)) -> (%y) {{
          %x#1: int8[1,8,8,3] q(0.5, 0) = transpose(%x) {{permutation=(0, 2, 3, 1)}}
          %y: int8[1,4,4,3] q(0.5, 0) = max_pool2d(%x#1) {{{POOL}}}
          %y#1: int8[1,3,4,4] q(0.5, 0) = transpose(%y) {{permutation=(0, 3, 1, 2)}}
        }}
        """.replace("-> (%y)", "-> (%y#1)"),
    )


def test_what_lies_between_is_computed_there() -> None:
    check_rewrite(
        ConvertLayout(),
        f"""\
        graph @g(%x: float32[1,3,8,8]) -> (%y) {{
          %a: float32[1,3,4,4] = max_pool2d(%x) {{{POOL}, layout="NCHW"}}
          %c = constant float32[3,1,1] [1.0, 2.0, 3.0]
          %b: float32[1,3,4,4] = mul(%a, %c)
          %p: float32[1,3,6,4] = pad(%b) {{padding=((0, 0), (0, 0), (1, 1), (0, 0)), fill=0.0}}
          %d: float32[1,3,3,2] = average_pool2d(%p) {{{POOL}, layout="NCHW"}}
          %m: float32[1,3] = mean(%d) {{axes=(2, 3), keep_dims=false}}
          %y: float32[1,3] = softmax(%m) {{beta=1.0}}
        }}
        """,
        f"""\
        graph @g(%x: float32[1,3,8,8]) -> (%y) {{
          %x#1: float32[1,8,8,3] = transpose(%x) {{permutation=(0, 2, 3, 1)}}
          %a: float32[1,4,4,3] = max_pool2d(%x#1) {{{POOL}}}
          %c = constant float32[1,1,1,3] [1.0, 2.0, 3.0]
          %b: float32[1,4,4,3] = mul(%a, %c)
          %p: float32[1,6,4,3] = pad(%b) {{padding=((0, 0), (1, 1), (0, 0), (0, 0)), fill=0.0}}
          %d: float32[1,3,2,3] = average_pool2d(%p) {{{POOL}}}
          %m: float32[1,3] = mean(%d) {{axes=(1, 2), keep_dims=false}}
          %y: float32[1,3] = softmax(%m) {{beta=1.0}}
        }}
        """,
    )


def test_one_operator_to_nchw() -> None:
    check_rewrite(
        ConvertLayout({"max_pool2d": "NCHW"}),
        f"""\
        graph @g(%x: float32[1,8,8,3]) -> (%y) {{
          %a: float32[1,4,4,3] = max_pool2d(%x) {{{POOL}}}
          %y: float32[1,2,2,3] = average_pool2d(%a) {{{POOL}}}
        }}
        """,
        f"""\
        graph @g(%x: float32[1,8,8,3]) -> (%y) {{
          %x#1: float32[1,3,8,8] = transpose(%x) {{permutation=(0, 3, 1, 2)}}
          %a: float32[1,3,4,4] = max_pool2d(%x#1) {{{POOL}, layout="NCHW"}}
          %a#1: float32[1,4,4,3] = transpose(%a) {{permutation=(0, 2, 3, 1)}}
          %y: float32[1,2,2,3] = average_pool2d(%a#1) {{{POOL}}}
        }}
        """,
    )


BLOCKED = f"""\
graph @g(%x: float32[1,8,8,8]) -> (%y#1) {{
  %x#1: float32[1,2,8,8,4] = layout_transform(%x) {{source="NHWC", target="NCHW4c"}}
  %a: float32[1,2,4,4,4] = max_pool2d(%x#1) {{{POOL}, layout="NCHW4c"}}
  %r: float32[1,2,4,4,4] = clip(%a) {{minimum=0.0, maximum=6.0}}
  %y: float32[1,2,2,2,4] = average_pool2d(%r) {{{POOL}, layout="NCHW4c"}}
  %y#1: float32[1,2,2,8] = layout_transform(%y) {{source="NCHW4c", target="NHWC"}}
}}
"""
PLAIN = f"""\
graph @g(%x: float32[1,8,8,8]) -> (%y) {{
  %a: float32[1,4,4,8] = max_pool2d(%x) {{{POOL}}}
  %r: float32[1,4,4,8] = clip(%a) {{minimum=0.0, maximum=6.0}}
  %y: float32[1,2,2,8] = average_pool2d(%r) {{{POOL}}}
}}
"""


def test_to_blocks() -> None:
    check_rewrite(ConvertLayout("NCHW4c"), PLAIN, BLOCKED)


def test_from_blocks() -> None:
    check_rewrite(ConvertLayout(), BLOCKED, PLAIN)


def test_a_block_that_does_not_divide() -> None:
    check_declined(
        ConvertLayout("NCHW4c"),
        f"""\
        graph @g(%x: float32[1,8,8,6]) -> (%y) {{
          %y: float32[1,4,4,6] = max_pool2d(%x) {{{POOL}}}
        }}
        """,
        "axis C must be divisible into blocks of 4; it has 6 elements",
    )


def test_nothing_to_do() -> None:
    check_declined(ConvertLayout(), PLAIN, "its layout is NHWC")


def test_filters_stay() -> None:
    check_rewrite(
        ConvertLayout(),
        """\
        graph @g(%x: float32[1,2,2,2]) -> (%s) {
          %w = constant float32[1,1,1,2] [1.0, 2.0]
          %y: float32[1,1,2,2] = conv2d(%x, %w, none) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0)), layout="NCHW"} | clip() {minimum=0.0, maximum=inf}
          %s: float32[1,1] = reduce_max(%y) {axes=(2, 3), keep_dims=false}
        }
        """,  # noqa: E501
        """\
        graph @g(%x: float32[1,2,2,2]) -> (%s) {
          %x#1: float32[1,2,2,2] = transpose(%x) {permutation=(0, 2, 3, 1)}
          %w = constant float32[1,1,1,2] [1.0, 2.0]
          %y: float32[1,2,2,1] = conv2d(%x#1, %w, none) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))} | clip() {minimum=0.0, maximum=inf}
          %y#1: float32[1,1,2,2] = reshape(%y) {shape=(1, 1, 2, 2)}
          %s: float32[1,1] = reduce_max(%y#1) {axes=(2, 3), keep_dims=false}
        }
        """,  # noqa: E501
    )


@pytest.mark.parametrize(
    ("desired", "reason"),
    [
        ("NHW", "axes N, H, W and C"),
        ({"conv2d": "blocked"}, "a layout is a sequence of axes"),
        ({"relu6": "NHWC"}, "is no operator with a layout; these are average_pool2d, conv2d"),
    ],
)
def test_unknown_wishes(desired: str | dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ConvertLayout(desired)


def test_what_is_converted_compiles() -> None:
    graph = ConvertLayout()(parse(BLOCKED))
    program = compile_graph(optimize_layout_transform(graph), targets.load("host"))
    assert not any(isinstance(layer.node.op, Transpose) for layer in program.layers)
