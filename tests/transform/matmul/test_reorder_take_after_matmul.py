"""Rows and columns are taken from products."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from microfold.ir.text import parse
from microfold.transform.matmul.reorder_take_after_matmul import reorder_take_after_matmul
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite


def test_layer_behind_an_embedding() -> None:
    check_rewrite(
        reorder_take_after_matmul,
        """
        graph @g(%i: int32[2]) -> (%y) {
          %e = constant int8[3,2] q(0.1, 3) [10, 20, 30, 40, 50, 60]
          %r: int8[2,2] q(0.1, 3) = gather(%e, %i) {axis=0}
          %w = constant int8[1,2] q(0.5, 0) [1, 2]
          %b = constant int32[1] [7]
          %y: int8[2,1] q(2.0, -5) = fully_connected(%r, %w, %b)
        }
        """,
        """
        graph @g(%i: int32[2]) -> (%y) {
          %y_table = constant int8[3,1] q(2.0, -5) [-4, -2, -1]
          %y: int8[2,1] q(2.0, -5) = gather(%y_table, %i) {axis=0}
        }
        """,
    )


@pytest.mark.parametrize("flags", list(itertools.product(["true", "false"], repeat=2)))
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("element", ["float32{}", "int8{} q(0.1, 3)"])
def test_few_slices_taken_often(flags: tuple[str, str], index: int, element: str) -> None:
    def shape(rows: int, columns: int, turned: str) -> str:
        return f"{columns},{rows}" if turned == "true" else f"{rows},{columns}"

    rows, columns = (16, 2) if index else (2, 16)
    first, second = shape(rows, 8, flags[0]), shape(8, columns, flags[1])
    # What is taken has 9 rows or columns.
    taken = shape(8, 9, flags[1]) if index else shape(9, 8, flags[0])
    axis = (0 if flags[1] == "true" else 1) if index else (1 if flags[0] == "true" else 0)
    source, pair = ("%b", "%a, %t") if index else ("%a", "%t, %b")
    before = parse(
        f"""
        graph @g(%a: {element.format(f"[{first}]")}, %b: {element.format(f"[{second}]")}, %i: int32[9]) -> (%y) {{
          %t: {element.format(f"[{taken}]")} = gather({source}, %i) {{axis={axis}}}
          %y: {element.format("[16,9]" if index else "[9,16]")} = batch_matmul({pair}) {{transpose_first={flags[0]}, transpose_second={flags[1]}}}
        }}
        """  # noqa: E501
    )
    after = reorder_take_after_matmul(before)
    assert [node.op.name for node in after.nodes] == ["batch_matmul", "gather"]
    assert after.nodes[0].macs() == 16 * 2 * 8
    assert_same_meaning(before, after, tolerance=1e-6)
    assert reorder_take_after_matmul(after) is after


def test_units_of_a_layer() -> None:
    values = ", ".join(str(n) for n in np.arange(24) % 5 - 2)
    before = parse(
        f"""
        graph @g(%x: int8[8,12] q(0.1, 3), %i: int32[6]) -> (%y) {{
          %w = constant int8[2,12] q(0.5, 0) [{values}]
          %t: int8[6,12] q(0.5, 0) = gather(%w, %i) {{axis=0}}
          %y: int8[8,6] q(0.4, -5) = fully_connected(%x, %t)
        }}
        """
    )
    after = reorder_take_after_matmul(before)
    assert [node.op.name for node in after.nodes] == ["fully_connected", "gather"]
    assert_same_meaning(before, after)


@pytest.mark.parametrize(
    ("gather", "outputs", "reason"),
    [
        ("%t: float32[1,8] = gather(%x, %i) {axis=0}", "%y", "instructions; it needs"),
        ("%t: float32[1,8] = gather(%x, %i) {axis=0}", "%y, %t", "other readers"),
        ("%t: float32[9,8] = gather(%u, %j) {axis=1}", "%z", "other slices"),
    ],
)
def test_declined(gather: str, outputs: str, reason: str) -> None:
    result = "%z: float32[9,2]" if outputs == "%z" else "%y: float32[1,2]"
    check_declined(
        reorder_take_after_matmul,
        f"""
        graph @g(%x: float32[9,8], %u: float32[9,4], %i: int32[1], %j: int32[8], %b: float32[8,2]) -> ({outputs}) {{
          {gather}
          {result} = batch_matmul(%t, %b) {{transpose_first=false, transpose_second=false}}
        }}
        """,  # noqa: E501
        reason,
    )
