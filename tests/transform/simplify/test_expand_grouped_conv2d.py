"""Grouped convolutions become dense ones of the same meaning."""

from __future__ import annotations

from microfold.transform.simplify.expand_grouped_conv2d import expand_grouped_conv2d
from tests.transform.check import check_declined, check_rewrite

ATTRIBUTES = "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}"


def test_groups_become_zeros() -> None:
    check_rewrite(
        expand_grouped_conv2d,
        f"""
        graph @g(%x: int8[1,2,2,4] q(0.1, 3)) -> (%y) {{
          %w = constant int8[2,1,1,2] q(0.5, 0) [3, 4, 5, 6]
          %y: int8[1,2,2,2] q(2.0, -5) = conv2d(%x, %w) {ATTRIBUTES}
        }}
        """,
        f"""
        graph @g(%x: int8[1,2,2,4] q(0.1, 3)) -> (%y) {{
          %w = constant int8[2,1,1,4] q(0.5, 0) [3, 4, 0, 0, 0, 0, 5, 6]
          %y: int8[1,2,2,2] q(2.0, -5) = conv2d(%x, %w) {ATTRIBUTES}
        }}
        """,
    )


def test_dense_convolutions_stay() -> None:
    check_declined(
        expand_grouped_conv2d,
        f"""
        graph @g(%x: int8[1,2,2,2] q(0.1, 3)) -> (%y) {{
          %w = constant int8[2,1,1,2] q(0.5, 0) [3, 4, 5, 6]
          %y: int8[1,2,2,2] q(2.0, -5) = conv2d(%x, %w) {ATTRIBUTES}
        }}
        """,
    )
