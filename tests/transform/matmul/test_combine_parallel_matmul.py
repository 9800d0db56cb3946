"""Products of one matrix with constant ones become one, where a kernel gains by it."""

from __future__ import annotations

import pytest

from microfold.transform.matmul.combine_parallel_matmul import CombineParallelMatmul
from tests.transform.check import check_declined, check_rewrite

combine = CombineParallelMatmul(element=1000.0)
FLAGS = "{transpose_first=false, transpose_second=false}"


def test_columns() -> None:
    check_rewrite(
        combine,
        f"""
        graph @g(%x: float32[2,1,2]) -> (%y, %z) {{
          %v = constant float32[2,1] [1.0, 2.0]
          %w = constant float32[2,2] [3.0, 4.0, 5.0, 6.0]
          %y: float32[2,1,1] = batch_matmul(%x, %v) {FLAGS}
          %z: float32[2,1,2] = batch_matmul(%x, %w) {FLAGS}
        }}
        """,
        f"""
        graph @g(%x: float32[2,1,2]) -> (%y, %z) {{
          %y_combined_weights = constant float32[2,3] [1.0, 3.0, 4.0, 2.0, 5.0, 6.0]
          %y_combined: float32[2,1,3] = batch_matmul(%x, %y_combined_weights) {FLAGS}
          %y: float32[2,1,1] = strided_slice(%y_combined) {{begin=(0, 0, 0), size=(2, 1, 1), strides=(1, 1, 1)}}
          %z: float32[2,1,2] = strided_slice(%y_combined) {{begin=(0, 0, 1), size=(2, 1, 2), strides=(1, 1, 1)}}
        }}
        """,  # noqa: E501
        tolerance=1e-6,
    )


def test_transposed_matrices() -> None:
    flags = "{transpose_first=true, transpose_second=true}"
    check_rewrite(
        combine,
        f"""
        graph @g(%x: int8[2,3] q(0.1, 3)) -> (%y, %z) {{
          %v = constant int8[1,2] q(0.2, 5) [1, 2]
          %w = constant int8[2,2] q(0.2, 5) [3, 4, 5, 6]
          %y: int8[3,1] q(0.3, 1) = batch_matmul(%x, %v) {flags}
          %z: int8[3,2] q(0.3, 1) = batch_matmul(%x, %w) {flags}
        }}
        """,
        f"""
        graph @g(%x: int8[2,3] q(0.1, 3)) -> (%y, %z) {{
          %y_combined_weights = constant int8[3,2] q(0.2, 5) [1, 2, 3, 4, 5, 6]
          %y_combined: int8[3,3] q(0.3, 1) = batch_matmul(%x, %y_combined_weights) {flags}
          %y: int8[3,1] q(0.3, 1) = strided_slice(%y_combined) {{begin=(0, 0), size=(3, 1), strides=(1, 1)}}
          %z: int8[3,2] q(0.3, 1) = strided_slice(%y_combined) {{begin=(0, 1), size=(3, 2), strides=(1, 1)}}
        }}
        """,
    )


@pytest.mark.parametrize(
    ("step", "quant", "reason"),
    [
        (CombineParallelMatmul(), "q(0.2, 5)", "the slices would need"),
        (combine, "q(0.3, 5)", ""),
    ],
)
def test_declined(step: object, quant: str, reason: str) -> None:
    check_declined(
        step,  # type: ignore[arg-type]
        f"""
        graph @g(%x: int8[3,2] q(0.1, 3)) -> (%y, %z) {{
          %v = constant int8[2,1] q(0.2, 5) [1, 2]
          %w = constant int8[2,1] {quant} [3, 4]
          %y: int8[3,1] q(0.3, 1) = batch_matmul(%x, %v) {FLAGS}
          %z: int8[3,1] q(0.3, 1) = batch_matmul(%x, %w) {FLAGS}
        }}
        """,
        reason,
    )
