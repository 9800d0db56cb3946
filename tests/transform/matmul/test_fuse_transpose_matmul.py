"""Transposes become flags of matrix products."""

from __future__ import annotations

import pytest

from microfold.transform.matmul.fuse_transpose_matmul import fuse_transpose_matmul
from tests.transform.check import check_declined, check_rewrite

TURN = "{permutation=(0, 2, 1)}"


@pytest.mark.parametrize("quant", ["", " q(0.05, 3)"])
def test_operands(quant: str) -> None:
    element = "int8" if quant else "float32"
    check_rewrite(
        fuse_transpose_matmul,
        f"""
        graph @g(%q: {element}[2,3,4]{quant}, %k: {element}[2,5,4]{quant}) -> (%y, %z) {{
          %t: {element}[2,4,5]{quant} = transpose(%k) {TURN}
          %y: {element}[2,3,5]{quant} = batch_matmul(%q, %t) {{transpose_first=false, transpose_second=false}}
          %u: {element}[2,4,3]{quant} = transpose(%q) {TURN}
          %z: {element}[2,3,5]{quant} = batch_matmul(%u, %k) {{transpose_first=true, transpose_second=true}}
        }}
        """,
        f"""
        graph @g(%q: {element}[2,3,4]{quant}, %k: {element}[2,5,4]{quant}) -> (%y, %z) {{
          %y: {element}[2,3,5]{quant} = batch_matmul(%q, %k) {{transpose_first=false, transpose_second=true}}
          %z: {element}[2,3,5]{quant} = batch_matmul(%q, %k) {{transpose_first=false, transpose_second=true}}
        }}
        """,
        tolerance=1e-6,
    )


@pytest.mark.parametrize("quant", ["", " q(0.05, 3)"])
def test_results(quant: str) -> None:
    element = "int8" if quant else "float32"
    check_rewrite(
        fuse_transpose_matmul,
        f"""
        graph @g(%a: {element}[1,4,3]{quant}, %b: {element}[2,4,5]{quant}) -> (%y) {{
          %p: {element}[2,3,5]{quant} = batch_matmul(%a, %b) {{transpose_first=true, transpose_second=false}}
          %y: {element}[2,5,3]{quant} = transpose(%p) {TURN}
        }}
        """,
        f"""
        graph @g(%a: {element}[1,4,3]{quant}, %b: {element}[2,4,5]{quant}) -> (%y) {{
          %y: {element}[2,5,3]{quant} = batch_matmul(%b, %a) {{transpose_first=true, transpose_second=false}}
        }}
        """,
        tolerance=1e-6,
    )


def test_computed_weights() -> None:
    check_rewrite(
        fuse_transpose_matmul,
        """
        graph @g(%x: int8[3,4] q(0.1, 2), %w: int8[4,5] q(0.02, -7)) -> (%y) {
          %t: int8[5,4] q(0.02, -7) = transpose(%w) {permutation=(1, 0)}
          %y: int8[3,5] q(0.1, 3) = fully_connected(%x, %t) | clip() {minimum=0.0, maximum=inf}
        }
        """,
        """
        graph @g(%x: int8[3,4] q(0.1, 2), %w: int8[4,5] q(0.02, -7)) -> (%y) {
          %y: int8[3,5] q(0.1, 3) = batch_matmul(%x, %w) {transpose_first=false, transpose_second=false} | clip() {minimum=0.0, maximum=inf}
        }
        """,  # noqa: E501
    )


@pytest.mark.parametrize(
    ("permutation", "shape", "outputs", "reason"),
    [
        ((1, 0, 2), "2,4,3", "%y", "more than swap"),
        ((0, 2, 1), "4,3,2", "%y, %t", "leaves the graph"),
        ((0, 2, 1), "4,3,2", "%y, %z", "abs reads it"),
    ],
)
def test_declined(permutation: tuple[int, ...], shape: str, outputs: str, reason: str) -> None:
    other = "%z: float32[4,2,3] = abs(%t)" if "%z" in outputs else ""
    check_declined(
        fuse_transpose_matmul,
        f"""
        graph @g(%x: float32[{shape}], %a: float32[4,5,2]) -> ({outputs}) {{
          %t: float32[4,2,3] = transpose(%x) {{permutation={permutation}}}
          {other}
          %y: float32[4,5,3] = batch_matmul(%a, %t) {{transpose_first=false, transpose_second=false}}
        }}
        """,
        reason,
    )


def test_bias_cannot_be_added() -> None:
    check_declined(
        fuse_transpose_matmul,
        """
        graph @g(%x: float32[3,4], %w: float32[4,5]) -> (%y) {
          %b = constant float32[5] [1.0, 2.0, 3.0, 4.0, 5.0]
          %t: float32[5,4] = transpose(%w) {permutation=(1, 0)}
          %y: float32[3,5] = fully_connected(%x, %t, %b)
        }
        """,
        "fully_connected reads it",
    )
