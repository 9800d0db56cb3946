"""Images are quantised before they are padded with zeros."""

from __future__ import annotations

import pytest

from microfold.transform.simplify.fold_pad import fold_pad
from microfold.transform.simplify.move_pad_behind_quantize import move_pad_behind_quantize
from tests.transform.check import check_declined, check_rewrite

PADDING = "padding=((0, 0), (1, 1), (2, 1), (0, 0)), fill=0.0"


@pytest.mark.parametrize("asymmetric", ["true", "false"])
def test_of_height_and_width(asymmetric: str) -> None:
    check_rewrite(
        move_pad_behind_quantize,
        f"""
        graph @g(%x: float32[2,3,3,1]) -> (%q, %s) {{
          %p: float32[2,5,6,1] = pad(%x) {{{PADDING}}}
          %q: int16[2,5,6,1], %s: float32[2] = dynamic_quantize(%p) {{asymmetric={asymmetric}}}
        }}
        """,
        f"""
        graph @g(%x: float32[2,3,3,1]) -> (%q, %s) {{
          %q_unpadded: int16[2,3,3,1], %s: float32[2] = dynamic_quantize(%x) {{asymmetric={asymmetric}}}
          %q: int16[2,5,6,1] = pad(%q_unpadded) {{{PADDING}}}
        }}
        """,
    )


def test_the_convolution_takes_it() -> None:
    constants = """
          %w = constant int8[1,3,3,1] q(0.5, 0) [1, -2, 3, -4, 5, -6, 7, -8, 9]
          %b = constant float32[1] [0.5]"""
    check_rewrite(
        fold_pad,
        f"""
        graph @g(%q: int16[1,3,3,1], %s: float32[1]) -> (%y) {{
          %p: int16[1,5,6,1] = pad(%q) {{{PADDING}}}{constants}
          %y: float32[1,3,4,1] = hybrid_conv2d(%p, %w, %b, %s) {{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}}
        }}
        """,  # noqa: E501
        f"""
        graph @g(%q: int16[1,3,3,1], %s: float32[1]) -> (%y) {{{constants}
          %y: float32[1,3,4,1] = hybrid_conv2d(%q, %w, %b, %s) {{strides=(1, 1), dilations=(1, 1), padding=((1, 1), (2, 1))}}
        }}
        """,  # noqa: E501
    )


@pytest.mark.parametrize(
    ("padding", "shape"), [("((1, 0), (0, 0)), fill=0.0", "4,3"), ("((0, 0), (1, 0)), fill=1.0", "3,4")]
)
def test_of_rows_or_other_numbers(padding: str, shape: str) -> None:
    rows = shape.split(",")[0]
    check_declined(
        move_pad_behind_quantize,
        f"""
        graph @g(%x: float32[3,3]) -> (%q, %s) {{
          %p: float32[{shape}] = pad(%x) {{padding={padding}}}
          %q: int16[{shape}], %s: float32[{rows}] = dynamic_quantize(%p) {{asymmetric=true}}
        }}
        """,
        "adds rows, or fills with another number than 0",
    )


def test_with_another_reader() -> None:
    check_declined(
        move_pad_behind_quantize,
        """
        graph @g(%x: float32[1,3]) -> (%q, %s, %p) {
          %p: float32[1,4] = pad(%x) {padding=((0, 0), (1, 0)), fill=0.0}
          %q: int16[1,4], %s: float32[1] = dynamic_quantize(%p) {asymmetric=true}
        }
        """,
        "pad %p has other readers",
    )
