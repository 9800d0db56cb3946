"""Transposes around fully connected layers turn their weights."""

from __future__ import annotations

import pytest

from microfold.ir.text import parse, to_text
from microfold.ops.movement.transpose import Transpose
from microfold.transform.matmul.simplify_fc_transpose import simplify_fc_transpose
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite


def test_input_of_several_rows() -> None:
    check_rewrite(
        simplify_fc_transpose,
        """
        graph @g(%x: int8[2,2,3] q(0.1, 3)) -> (%y) {
          %w = constant int8[2,6] q(0.5, 0) [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
          %t: int8[2,3,2] q(0.1, 3) = transpose(%x) {permutation=(0, 2, 1)}
          %r: int8[2,6] q(0.1, 3) = reshape(%t) {shape=(2, 6)}
          %y: int8[2,2] q(2.0, -5) = fully_connected(%r, %w) | clip() {minimum=0.0, maximum=inf}
        }
        """,
        """
        graph @g(%x: int8[2,2,3] q(0.1, 3)) -> (%y) {
          %r: int8[2,6] q(0.1, 3) = reshape(%x) {shape=(2, 6)}
          %w = constant int8[2,6] q(0.5, 0) [1, 3, 5, 2, 4, 6, 7, 9, 11, 8, 10, 12]
          %y: int8[2,2] q(2.0, -5) = fully_connected(%r, %w) | clip() {minimum=0.0, maximum=inf}
        }
        """,
    )


def test_result_with_scales_and_biases() -> None:
    check_rewrite(
        simplify_fc_transpose,
        """
        graph @g(%x: int8[1,2] q(0.1, 3)) -> (%y) {
          %w = constant int8[4,2] q(axis=0, scales=[0.1, 0.2, 0.3, 0.4], zero_points=0) [1, 2, 3, 4, 5, 6, 7, 8]
          %b = constant int32[4] [10, 20, 30, 40]
          %a: int8[1,4] q(0.5, -5) = fully_connected(%x, %w, %b)
          %r: int8[1,2,2] q(0.5, -5) = reshape(%a) {shape=(1, 2, 2)}
          %y: int8[1,2,2] q(0.5, -5) = transpose(%r) {permutation=(0, 2, 1)}
        }
        """,  # noqa: E501
        """
        graph @g(%x: int8[1,2] q(0.1, 3)) -> (%y) {
          %w = constant int8[4,2] q(axis=0, scales=[0.1, 0.3, 0.2, 0.4], zero_points=0) [1, 2, 5, 6, 3, 4, 7, 8]
          %b = constant int32[4] [10, 30, 20, 40]
          %a: int8[1,4] q(0.5, -5) = fully_connected(%x, %w, %b)
          %y: int8[1,2,2] q(0.5, -5) = reshape(%a) {shape=(1, 2, 2)}
        }
        """,  # noqa: E501
    )


def test_two_heads_behind_one_transpose_between_layers() -> None:
    weights = {
        name: " ".join(f"{(7 * i + n) % 11 - 5}.5," for i in range(24)) for n, name in enumerate("abc")
    }
    before = parse(
        f"""
        graph @g(%x: float32[1,2]) -> (%y, %z) {{
          %c = constant float32[12,2] [{weights["c"]}]
          %a = constant float32[2,12] [{weights["a"]}]
          %b = constant float32[2,12] [{weights["b"]}]
          %h: float32[1,12] = fully_connected(%x, %c)
          %i: float32[1,2,3,2] = reshape(%h) {{shape=(1, 2, 3, 2)}}
          %t: float32[1,2,2,3] = transpose(%i) {{permutation=(0, 3, 1, 2)}}
          %r: float32[1,12] = reshape(%t) {{shape=(1, 12)}}
          %y: float32[1,2] = fully_connected(%r, %a)
          %z: float32[1,2] = fully_connected(%r, %b)
        }}
        """
    )
    after = simplify_fc_transpose(before)
    assert not any(isinstance(node.op, Transpose) for node in after.nodes)
    assert_same_meaning(before, after, tolerance=1e-6)
    assert to_text(simplify_fc_transpose(after)) == to_text(after)


@pytest.mark.parametrize(
    ("shape", "permutation", "outputs", "reason"),
    [
        ("3,2,2", (1, 0, 2), "%y", "mixes rows"),
        ("2,3,2", (0, 1, 2), "%y, %r", "other readers"),
    ],
)
def test_declined(shape: str, permutation: tuple[int, ...], outputs: str, reason: str) -> None:
    check_declined(
        simplify_fc_transpose,
        f"""
        graph @g(%x: int8[{shape}] q(0.1, 3)) -> ({outputs}) {{
          %w = constant int8[1,6] q(0.5, 0) [1, 2, 3, 4, 5, 6]
          %t: int8[2,3,2] q(0.1, 3) = transpose(%x) {{permutation={permutation}}}
          %r: int8[2,6] q(0.1, 3) = reshape(%t) {{shape=(2, 6)}}
          %y: int8[2,1] q(2.0, -5) = fully_connected(%r, %w)
        }}
        """,
        reason,
    )


def test_computed_weights() -> None:
    check_declined(
        simplify_fc_transpose,
        """
        graph @g(%x: float32[1,2,3], %w: float32[2,6]) -> (%y) {
          %t: float32[1,3,2] = transpose(%x) {permutation=(0, 2, 1)}
          %r: float32[1,6] = reshape(%t) {shape=(1, 6)}
          %y: float32[1,2] = fully_connected(%r, %w)
        }
        """,
        "not constant",
    )


def test_result_that_mixes_rows() -> None:
    check_declined(
        simplify_fc_transpose,
        """
        graph @g(%x: float32[2,2]) -> (%y) {
          %w = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
          %a: float32[2,2] = fully_connected(%x, %w)
          %y: float32[2,2] = transpose(%a) {permutation=(1, 0)}
        }
        """,
        "mixes rows",
    )
