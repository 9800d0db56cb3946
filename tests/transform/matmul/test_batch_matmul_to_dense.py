"""Products with one constant matrix become fully connected layers."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import TextFormError
from microfold.ir.text import parse
from microfold.ir.types import DType
from microfold.transform.matmul.batch_matmul_to_dense import batch_matmul_to_dense
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

PLAIN = "{transpose_first=false, transpose_second=false}"


def test_sums_become_biases() -> None:
    check_rewrite(
        batch_matmul_to_dense,
        f"""
        graph @g(%x: float32[2,1,2]) -> (%y) {{
          %w = constant float32[2,3] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
          %b = constant float32[1,3] [0.5, 0.25, 2.0]
          %a: float32[2,1,3] = batch_matmul(%x, %w) {PLAIN}
          %y: float32[2,1,3] = add(%b, %a)
        }}
        """,
        """
        graph @g(%x: float32[2,1,2]) -> (%y) {
          %a_rows: float32[2,2] = reshape(%x) {shape=(2, 2)}
          %w = constant float32[3,2] [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
          %y_bias = constant float32[3] [0.5, 0.25, 2.0]
          %y_product: float32[2,3] = fully_connected(%a_rows, %w, %y_bias)
          %y: float32[2,1,3] = reshape(%y_product) {shape=(2, 1, 3)}
        }
        """,
        tolerance=1e-6,
    )


def test_integers_keep_their_bits() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        scales = np.exp(rng.uniform(-6, 1, 3)).astype(np.float32).tolist()
        points = rng.integers(-128, 128, 3).tolist()
        turned = bool(rng.integers(2))
        weights = rng.integers(-128, 128, 24).tolist()
        shape = "3,8" if turned else "8,3"
        try:
            before = parse(
                f"""
                graph @g(%x: int8[2,16,8] q({scales[0]!r}, {points[0]})) -> (%y) {{
                  %w = constant int8[1,1,{shape}] q({scales[1]!r}, {points[1]}) {weights}
                  %y: int8[1,2,16,3] q({scales[2]!r}, {points[2]}) = batch_matmul(%x, %w) {{
                    transpose_first=false, transpose_second={str(turned).lower()}
                  }}
                }}
                """
            )
        except TextFormError:
            continue  # no multiplier for these scales
        after = batch_matmul_to_dense(before)
        assert [node.op.name for node in after.nodes] == ["reshape", "fully_connected", "reshape"]
        assert_same_meaning(before, after)
        assert batch_matmul_to_dense(after) is after


@pytest.mark.parametrize(("largest", "fits"), [(127, True), (128, False)])
def test_int16_matrices_become_weights_of_int8(largest: int, fits: bool) -> None:
    """Where all their numbers are of int8: layers of int16 have no other weights."""
    weights = [-128, largest, *range(-11, 11)]
    before = parse(
        f"""
        graph @g(%x: int16[2,16,8] q(0.01, 0)) -> (%y) {{
          %w = constant int16[8,3] q(0.02, 0) {weights}
          %y: int16[2,16,3] q(0.5, 0) = batch_matmul(%x, %w) {{transpose_first=false, transpose_second=false}}
        }}
        """
    )
    after = batch_matmul_to_dense(before)
    assert (after is not before) == fits
    if fits:
        assert after.nodes[1].operands[1].type.dtype is DType.INT8
        assert_same_meaning(before, after)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"%y: float32[2,2,2] = batch_matmul(%x, %x) {PLAIN}", "%x is not constant"),
        (f"%y: float32[2,2,2] = batch_matmul(%w, %x) {PLAIN}", "%w is constant"),
        (f"%y: float32[2,2,2] = batch_matmul(%x, %k) {PLAIN}", "%k has 2 matrices"),
        (
            "%y: float32[2,2,2] = batch_matmul(%x, %w) {transpose_first=true, transpose_second=false}",
            "%x is transposed",
        ),
    ],
)
def test_declined(line: str, reason: str) -> None:
    check_declined(
        batch_matmul_to_dense,
        f"""
        graph @g(%x: float32[2,2,2]) -> (%y) {{
          %w = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
          %k = constant float32[2,2,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
          {line}
        }}
        """,
        reason,
    )


def test_sums_that_are_no_bias() -> None:
    for constant in ("float32[2,1] [1.0, 2.0]", "float32[1] [1.0]"):
        graph = parse(
            f"""
            graph @g(%x: float32[1,2,2]) -> (%y) {{
              %w = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
              %b = constant {constant}
              %a: float32[1,2,2] = batch_matmul(%x, %w) {PLAIN}
              %y: float32[1,2,2] = add(%a, %b)
            }}
            """
        )
        after = batch_matmul_to_dense(graph)
        assert after.nodes[-1].op.name == "add"
        assert_same_meaning(graph, after, tolerance=1e-6)
