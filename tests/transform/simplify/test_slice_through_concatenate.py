"""Slices of concatenations are slices of their parts."""

from __future__ import annotations

from microfold.transform.simplify.slice_through_concatenate import slice_through_concatenate
from tests.transform.check import check_declined, check_rewrite


def test_parts_and_what_lies_in_them() -> None:
    check_rewrite(
        slice_through_concatenate,
        """
        graph @g(%x: int8[2,3] q(0.1, 3), %z: int8[2,5] q(0.1, 3)) -> (%a, %b, %c) {
          %w: int8[2,8] q(0.1, 3) = concatenate(%x, %z) {axis=1}
          %p: int8[2,3] q(0.1, 3) = strided_slice(%w) {begin=(0, 0), size=(2, 3), strides=(1, 1)}
          %a: int8[2,3] q(0.1, 3) = clip(%p) {minimum=0.0, maximum=6.0}
          %b: int8[2,2] q(0.1, 3) = strided_slice(%w) {begin=(0, 7), size=(2, 2), strides=(1, -3)}
          %c: int8[1,5] q(0.1, 3) = strided_slice(%w) {begin=(1, 3), size=(1, 5), strides=(1, 1)}
        }
        """,
        """
        graph @g(%x: int8[2,3] q(0.1, 3), %z: int8[2,5] q(0.1, 3)) -> (%a, %b, %c) {
          %a: int8[2,3] q(0.1, 3) = clip(%x) {minimum=0.0, maximum=6.0}
          %b: int8[2,2] q(0.1, 3) = strided_slice(%z) {begin=(0, 4), size=(2, 2), strides=(1, -3)}
          %c: int8[1,5] q(0.1, 3) = strided_slice(%z) {begin=(1, 0), size=(1, 5), strides=(1, 1)}
        }
        """,
    )


def test_what_several_parts_have() -> None:
    text = """
        graph @g(%x: int8[2,3] q(0.1, 3), %z: int8[2,5] q(0.1, 3)) -> (%b) {
          %w: int8[2,8] q(0.1, 3) = concatenate(%x, %z) {axis=1}
          %b: int8[2,2] q(0.1, 3) = strided_slice(%w) {begin=(0, 7), size=(2, 2), strides=(1, -5)}
        }
    """
    check_declined(slice_through_concatenate, text, "several parts of %w")


def test_the_order_of_elements_is_kept() -> None:
    """All elements of a part, backwards, are not the part."""
    check_rewrite(
        slice_through_concatenate,
        """
        graph @g(%x: int8[2,3] q(0.1, 3), %z: int8[2,5] q(0.1, 3)) -> (%b) {
          %w: int8[2,8] q(0.1, 3) = concatenate(%x, %z) {axis=1}
          %b: int8[2,3] q(0.1, 3) = strided_slice(%w) {begin=(0, 2), size=(2, 3), strides=(1, -1)}
        }
        """,
        """
        graph @g(%x: int8[2,3] q(0.1, 3), %z: int8[2,5] q(0.1, 3)) -> (%b) {
          %b: int8[2,3] q(0.1, 3) = strided_slice(%x) {begin=(0, 2), size=(2, 3), strides=(1, -1)}
        }
        """,
    )
