"""Convolutions of phases of an image become dilated ones."""

from __future__ import annotations

import pytest

from microfold.ir.text import parse
from microfold.ops.convolution.conv2d import Conv2D
from microfold.pipeline import optimize
from microfold.transform.simplify.flatten_atrous_conv import flatten_atrous_conv
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

WEIGHTS = "%w = constant int8[1,3,3,1] q(0.5, 0) [3, -4, 5, 6, -7, 8, 9, 10, -11]"
ATTRIBUTES = "strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1))"


def _phases(rows: int, columns: int, *, order: str = "(2, 3, 0, 4, 1, 5)", across: int = 3) -> str:
    """A convolution of 2 x `across` phases, of these rows and columns each, put together again."""
    whole, phase = f"1,{rows},2,{columns},{across},1", f"{2 * across},{rows},{columns},1"
    apart = f"2,{across},1,{rows},{columns},1"
    return f"""
          %s: int8[{whole}] q(0.1, 3) = reshape(%x) {{shape=({whole})}}
          %t: int8[{apart}] q(0.1, 3) = transpose(%s) {{permutation=(2, 4, 0, 1, 3, 5)}}
          %p: int8[{phase}] q(0.1, 3) = reshape(%t) {{shape=({phase})}}
          %c: int8[{phase}] q(2.0, -5) = conv2d(%p, %w) {{{ATTRIBUTES}}}
          %r: int8[{apart}] q(2.0, -5) = reshape(%c) {{shape=({apart})}}
          %u: int8[{whole}] q(2.0, -5) = transpose(%r) {{permutation={order}}}
          %y: int8[1,{2 * rows},{across * columns},1] q(2.0, -5) = reshape(%u) {{
            shape=(1, {2 * rows}, {across * columns}, 1)
          }}
    """


def test_two_axes() -> None:
    attributes = "{strides=(1, 1), dilations=(2, 3), padding=((2, 2), (3, 3))}"
    check_rewrite(
        flatten_atrous_conv,
        f"""
        graph @g(%x: int8[1,6,12,1] q(0.1, 3)) -> (%y) {{
          {WEIGHTS}
          {_phases(3, 4)}
        }}
        """,
        f"""
        graph @g(%x: int8[1,6,12,1] q(0.1, 3)) -> (%y) {{
          %s: int8[1,3,2,4,3,1] q(0.1, 3) = reshape(%x) {{shape=(1, 3, 2, 4, 3, 1)}}
          %u_image: int8[1,6,12,1] q(0.1, 3) = reshape(%s) {{shape=(1, 6, 12, 1)}}
          %w = constant int8[1,3,3,1] q(0.5, 0) [3, -4, 5, 6, -7, 8, 9, 10, -11]
          %u_conv: int8[1,6,12,1] q(2.0, -5) = conv2d(%u_image, %w) {attributes}
          %u: int8[1,3,2,4,3,1] q(2.0, -5) = reshape(%u_conv) {{shape=(1, 3, 2, 4, 3, 1)}}
          %y: int8[1,6,12,1] q(2.0, -5) = reshape(%u) {{shape=(1, 6, 12, 1)}}
        }}
        """,
    )


def test_one_axis_and_a_bias_in_between() -> None:
    """As Conv1D is written: images of one row, and a sum before the phases are put together."""
    attributes = "{strides=(1, 1), dilations=(1, 2), padding=((0, 0), (0, 0))}"
    check_rewrite(
        flatten_atrous_conv,
        """
        graph @g(%x: float32[1,8,2]) -> (%y) {
          %w = constant float32[2,1,3,2] [1.0, 2.0, -3.0, 4.0, 5.0, -6.0, 7.0, 8.0, 9.0, -1.0, 2.0, 1.0]
          %b = constant float32[1,1,2] [5.0, -5.0]
          %s: float32[1,4,2,2] = reshape(%x) {shape=(1, 4, 2, 2)}
          %t: float32[2,1,4,2] = transpose(%s) {permutation=(2, 0, 1, 3)}
          %c: float32[2,1,2,2] = conv2d(%t, %w) {
            strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))
          }
          %d: float32[2,2,2] = reshape(%c) {shape=(2, 2, 2)}
          %e: float32[2,2,2] = add(%d, %b)
          %y: float32[2,2,2] = transpose(%e) {permutation=(1, 0, 2)}
        }
        """,
        f"""
        graph @g(%x: float32[1,8,2]) -> (%y) {{
          %s: float32[1,4,2,2] = reshape(%x) {{shape=(1, 4, 2, 2)}}
          %y_image: float32[1,1,8,2] = reshape(%s) {{shape=(1, 1, 8, 2)}}
          %w = constant float32[2,1,3,2] [1.0, 2.0, -3.0, 4.0, 5.0, -6.0, 7.0, 8.0, 9.0, -1.0, 2.0, 1.0]
          %y_conv: float32[1,1,4,2] = conv2d(%y_image, %w) {attributes}
          %b = constant float32[2] [5.0, -5.0]
          %e: float32[1,1,4,2] = add(%y_conv, %b)
          %y: float32[2,2,2] = reshape(%e) {{shape=(2, 2, 2)}}
        }}
        """,
    )


def test_what_is_cropped_is_less_padding() -> None:
    attributes = "{strides=(1, 1), dilations=(1, 1), padding=((0, 1), (1, 1))}"
    check_rewrite(
        flatten_atrous_conv,
        f"""
        graph @g(%x: int8[1,4,4,1] q(0.1, 3)) -> (%y) {{
          {WEIGHTS}
          %c: int8[1,4,6,1] q(2.0, -5) = conv2d(%x, %w) {{
            strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 3))
          }}
          %r: int8[1,4,6,1] q(2.0, -5) = clip(%c) {{minimum=0.0, maximum=inf}}
          %y: int8[1,3,4,1] q(2.0, -5) = strided_slice(%r) {{
            begin=(0, 1, 0, 0), size=(1, 3, 4, 1), strides=(1, 1, 1, 1)
          }}
        }}
        """,
        f"""
        graph @g(%x: int8[1,4,4,1] q(0.1, 3)) -> (%y) {{
          %w = constant int8[1,3,3,1] q(0.5, 0) [3, -4, 5, 6, -7, 8, 9, 10, -11]
          %y_conv: int8[1,3,4,1] q(2.0, -5) = conv2d(%x, %w) {attributes}
          %r: int8[1,3,4,1] q(2.0, -5) = clip(%y_conv) {{minimum=0.0, maximum=inf}}
          %y: int8[1,3,4,1] q(2.0, -5) = reshape(%r) {{shape=(1, 3, 4, 1)}}
        }}
        """,
    )


def test_what_is_cropped_of_one_row() -> None:
    attributes = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (2, 0))}"
    check_rewrite(
        flatten_atrous_conv,
        """
        graph @g(%x: int8[1,1,4,1] q(0.1, 3)) -> (%y) {
          %w = constant int8[1,1,3,1] q(0.5, 0) [3, -4, 5]
          %c: int8[1,1,5,1] q(2.0, -5) = conv2d(%x, %w) {
            strides=(1, 1), dilations=(1, 1), padding=((0, 0), (2, 1))
          }
          %r: int8[1,5,1] q(2.0, -5) = reshape(%c) {shape=(1, 5, 1)}
          %y: int8[1,4,1] q(2.0, -5) = strided_slice(%r) {begin=(0, 0, 0), size=(1, 4, 1), strides=(1, 1, 1)}
        }
        """,
        f"""
        graph @g(%x: int8[1,1,4,1] q(0.1, 3)) -> (%y) {{
          %w = constant int8[1,1,3,1] q(0.5, 0) [3, -4, 5]
          %y_conv: int8[1,1,4,1] q(2.0, -5) = conv2d(%x, %w) {attributes}
          %y: int8[1,4,1] q(2.0, -5) = reshape(%y_conv) {{shape=(1, 4, 1)}}
        }}
        """,
    )


def test_more_than_the_padding_stays() -> None:
    text = f"""
        graph @g(%x: int8[1,4,4,1] q(0.1, 3)) -> (%y) {{
          {WEIGHTS}
          %c: int8[1,4,4,1] q(2.0, -5) = conv2d(%x, %w) {{{ATTRIBUTES}}}
          %y: int8[1,2,4,1] q(2.0, -5) = strided_slice(%c) {{
            begin=(0, 2, 0, 0), size=(1, 2, 4, 1), strides=(1, 1, 1, 1)
          }}
        }}
    """
    check_declined(flatten_atrous_conv, text, "more than the padding")


def test_phases_in_another_order_are_no_dilation() -> None:
    body = _phases(3, 6, order="(2, 3, 1, 4, 0, 5)", across=2)
    graph = parse(f"graph @g(%x: int8[1,6,12,1] q(0.1, 3)) -> (%y) {{ {WEIGHTS} {body} }}")
    assert flatten_atrous_conv(graph) is graph


def test_steps_of_more_than_one_pixel() -> None:
    text = f"""
        graph @g(%x: int8[1,4,6,1] q(0.1, 3)) -> (%y) {{
          {WEIGHTS}
          %s: int8[1,2,2,3,2,1] q(0.1, 3) = reshape(%x) {{shape=(1, 2, 2, 3, 2, 1)}}
          %t: int8[2,2,1,2,3,1] q(0.1, 3) = transpose(%s) {{permutation=(2, 4, 0, 1, 3, 5)}}
          %p: int8[4,2,3,1] q(0.1, 3) = reshape(%t) {{shape=(4, 2, 3, 1)}}
          %c: int8[4,1,2,1] q(2.0, -5) = conv2d(%p, %w) {{
            strides=(2, 2), dilations=(1, 1), padding=((1, 1), (1, 1))
          }}
          %r: int8[2,2,1,1,2,1] q(2.0, -5) = reshape(%c) {{shape=(2, 2, 1, 1, 2, 1)}}
          %u: int8[1,1,2,2,2,1] q(2.0, -5) = transpose(%r) {{permutation=(2, 3, 0, 4, 1, 5)}}
          %y: int8[1,2,4,1] q(2.0, -5) = reshape(%u) {{shape=(1, 2, 4, 1)}}
        }}
    """
    check_declined(flatten_atrous_conv, text, "strides (2, 2), not (1, 1)")


@pytest.mark.parametrize("other", ["%c", "%r"])
def test_what_else_is_read_stays(other: str) -> None:
    text = _phases(3, 4)
    graph = f"graph @g(%x: int8[1,6,12,1] q(0.1, 3)) -> (%y, {other}) {{ {WEIGHTS} {text} }}"
    check_declined(flatten_atrous_conv, graph, f"{other} has other readers")


def test_of_a_padded_image_one_convolution_is_left() -> None:
    """space_to_batch pads and batch_to_space crops where blocks do not divide the image."""
    text = f"""
        graph @g(%z: int8[1,5,12,1] q(0.1, 3)) -> (%v) {{
          {WEIGHTS}
          %x: int8[1,6,12,1] q(0.1, 3) = pad(%z) {{padding=((0, 0), (0, 1), (0, 0), (0, 0)), fill=3.0}}
          {_phases(3, 4)}
          %v: int8[1,5,12,1] q(2.0, -5) = strided_slice(%y) {{
            begin=(0, 0, 0, 0), size=(1, 5, 12, 1), strides=(1, 1, 1, 1)
          }}
        }}
    """
    graph = parse(text)
    (node,) = optimize(graph).nodes
    assert node.op == Conv2D((1, 1), (2, 3), ((2, 2), (3, 3)), node.output.type.element)
    assert_same_meaning(graph, optimize(graph))
