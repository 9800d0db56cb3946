"""Pads go behind reshapes that make images of rows."""

from __future__ import annotations

import pytest

from microfold.ir.text import parse
from microfold.ops.convolution.conv2d import Conv2D
from microfold.pipeline import optimize
from microfold.transform.simplify.move_pad_behind_reshape import move_pad_behind_reshape
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite


def test_a_row_of_pixels() -> None:
    check_rewrite(
        move_pad_behind_reshape,
        """
        graph @g(%x: int8[1,3,2] q(0.1, 3)) -> (%y) {
          %p: int8[1,7,2] q(0.1, 3) = pad(%x) {padding=((0, 0), (4, 0), (0, 0)), fill=3.0}
          %y: int8[1,1,7,2] q(0.1, 3) = reshape(%p) {shape=(1, 1, 7, 2)}
        }
        """,
        """
        graph @g(%x: int8[1,3,2] q(0.1, 3)) -> (%y) {
          %y_image: int8[1,1,3,2] q(0.1, 3) = reshape(%x) {shape=(1, 1, 3, 2)}
          %y: int8[1,1,7,2] q(0.1, 3) = pad(%y_image) {padding=((0, 0), (0, 0), (4, 0), (0, 0)), fill=3.0}
        }
        """,
    )


def test_axes_that_go() -> None:
    check_rewrite(
        move_pad_behind_reshape,
        """
        graph @g(%x: float32[1,1,3,1,2]) -> (%y) {
          %p: float32[1,1,3,3,2] = pad(%x) {padding=((0, 0), (0, 0), (0, 0), (1, 1), (0, 0)), fill=3.0}
          %y: float32[1,3,3,2] = reshape(%p) {shape=(1, 3, 3, 2)}
        }
        """,
        """
        graph @g(%x: float32[1,1,3,1,2]) -> (%y) {
          %y_image: float32[1,3,1,2] = reshape(%x) {shape=(1, 3, 1, 2)}
          %y: float32[1,3,3,2] = pad(%y_image) {padding=((0, 0), (0, 0), (1, 1), (0, 0)), fill=3.0}
        }
        """,
    )


@pytest.mark.parametrize(
    ("shape", "outputs", "reason"),
    [
        ("1, 2, 7, 1", "%y", "more than add or remove axes"),
        ("1, 1, 7, 2", "%y, %p", "other readers"),
    ],
)
def test_what_stays(shape: str, outputs: str, reason: str) -> None:
    text = f"""
        graph @g(%x: float32[1,3,2]) -> ({outputs}) {{
          %p: float32[1,7,2] = pad(%x) {{padding=((0, 0), (4, 0), (0, 0)), fill=3.0}}
          %y: float32[{shape.replace(" ", "")}] = reshape(%p) {{shape=({shape})}}
        }}
    """
    check_declined(move_pad_behind_reshape, text, reason)


def test_a_convolution_along_one_axis_pads_itself() -> None:
    text = """
        graph @g(%x: float32[1,5,2]) -> (%y) {
          %w = constant float32[1,1,3,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
          %p: float32[1,7,2] = pad(%x) {padding=((0, 0), (2, 0), (0, 0)), fill=0.0}
          %r: float32[1,1,7,2] = reshape(%p) {shape=(1, 1, 7, 2)}
          %y: float32[1,1,5,1] = conv2d(%r, %w) {
            strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))
          }
        }
    """
    graph = parse(text)
    result = optimize(graph)
    assert [node.op.name for node in result.nodes] == ["reshape", "conv2d"]
    assert isinstance(result.nodes[1].op, Conv2D)
    assert result.nodes[1].op.padding == ((0, 0), (2, 0))
    assert_same_meaning(graph, result)


def test_samples_of_a_transform() -> None:
    check_rewrite(
        move_pad_behind_reshape,
        """
        graph @g(%x: float32[2,3]) -> (%y) {
          %p: float32[2,8] = pad(%x) {padding=((0, 0), (0, 5)), fill=0.0}
          %r: float32[2,1,8] = reshape(%p) {shape=(2, 1, 8)}
          %y: float32[2,1,10] = signal_rfft(%r) {fft_length=8}
        }
        """,
        """
        graph @g(%x: float32[2,3]) -> (%y) {
          %r_image: float32[2,1,3] = reshape(%x) {shape=(2, 1, 3)}
          %r: float32[2,1,8] = pad(%r_image) {padding=((0, 0), (0, 0), (0, 5)), fill=0.0}
          %y: float32[2,1,10] = signal_rfft(%r) {fft_length=8}
        }
        """,
    )
