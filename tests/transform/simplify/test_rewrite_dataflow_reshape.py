from __future__ import annotations

import pytest

from microfold.transform.simplify.rewrite_dataflow_reshape import rewrite_dataflow_reshape
from tests.transform.check import check_declined, check_rewrite

INDICES = "%i = constant int32[3] [0, 1, 2]\n"


def graph(node: str) -> str:
    *constants, last = node.splitlines()
    lines = "".join(f"  {line}\n" for line in (*constants, f"%y: {last}"))
    return f"graph @g(%x: int8[1,3,1,4] q(0.1, 3), %j: int32[3]) -> (%y) {{\n{lines}}}\n"


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("int8[3,4,1,1] q(0.1, 3) = transpose(%x) {permutation=(1, 3, 0, 2)}", "3, 4, 1, 1"),
        (
            "int8[1,3,1,4] q(0.1, 3) = strided_slice(%x) "
            "{begin=(0, 0, 0, 0), size=(1, 3, 1, 4), strides=(-1, 1, 2, 1)}",
            "1, 3, 1, 4",
        ),
        (INDICES + "int8[1,3,1,4] q(0.1, 3) = gather(%x, %i) {axis=1}", "1, 3, 1, 4"),
        ("%i = constant int32[] [0]\nint8[1,3,4] q(0.1, 3) = gather(%x, %i) {axis=2}", "1, 3, 4"),
        ("int8[1,3,1,4] q(0.1, 3) = concatenate(%x) {axis=1}", "1, 3, 1, 4"),
        ("int8[1,1,3,1,4] q(0.1, 3) = broadcast_to(%x) {shape=(1, 1, 3, 1, 4)}", "1, 1, 3, 1, 4"),
    ],
)
def test_what_keeps_the_order(node: str, shape: str) -> None:
    plain = shape.replace(" ", "")
    check_rewrite(
        rewrite_dataflow_reshape,
        graph(node),
        graph(f"int8[{plain}] q(0.1, 3) = reshape(%x) {{shape=({shape})}}"),
    )


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            "int8[1,4,1,3] q(0.1, 3) = transpose(%x) {permutation=(0, 3, 2, 1)}",
            "axes of more than one element change places",
        ),
        (
            "int8[1,3,1,4] q(0.1, 3) = strided_slice(%x) "
            "{begin=(0, 2, 0, 0), size=(1, 3, 1, 4), strides=(1, -1, 1, 1)}",
            "it reverses an axis",
        ),
        (
            INDICES.replace("0, 1", "1, 0") + "int8[1,3,1,4] q(0.1, 3) = gather(%x, %i) {axis=1}",
            "not in order",
        ),
        ("int8[1,3,1,4] q(0.1, 3) = gather(%x, %j) {axis=1}", "its indices are computed"),
        ("int8[1,6,1,4] q(0.1, 3) = concatenate(%x, %x) {axis=1}", "it makes 24 elements of 12"),
    ],
)
def test_what_moves(node: str, reason: str) -> None:
    check_declined(rewrite_dataflow_reshape, graph(node), reason)
