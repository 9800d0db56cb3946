from __future__ import annotations

from microfold.transform.matmul.reorder_permute_dims_after_concat import reorder_permute_dims_after_concat
from tests.transform.check import check_declined, check_rewrite


def test_equal_transposes() -> None:
    check_rewrite(
        reorder_permute_dims_after_concat,
        """\
        graph @g(%x: float32[1,4,4,2], %y: float32[1,4,4,3]) -> (%z) {
          %a: float32[1,2,4,4] = transpose(%x) {permutation=(0, 3, 1, 2)}
          %b: float32[1,3,4,4] = transpose(%y) {permutation=(0, 3, 1, 2)}
          %z: float32[1,5,4,4] = concatenate(%a, %b) {axis=1} | clip() {minimum=0.0, maximum=6.0}
        }
        """,
        """\
        graph @g(%x: float32[1,4,4,2], %y: float32[1,4,4,3]) -> (%z#1) {
          %z: float32[1,4,4,5] = concatenate(%x, %y) {axis=3} | clip() {minimum=0.0, maximum=6.0}
          %z#1: float32[1,5,4,4] = transpose(%z) {permutation=(0, 3, 1, 2)}
        }
        """,
    )


def test_constant_parts_and_equal_parts() -> None:
    check_rewrite(
        reorder_permute_dims_after_concat,
        """\
        graph @g(%x: int8[2,1], %y: int8[2,1]) -> (%z) {
          %a: int8[1,2] = transpose(%x) {permutation=(1, 0)}
          %b: int8[1,2] = transpose(%y) {permutation=(1, 0)}
          %c = constant int8[2,2] [1, 2, 3, 4]
          %z: int8[5,2] = concatenate(%a, %c, %b, %a) {axis=0}
        }
        """,
        """\
        graph @g(%x: int8[2,1], %y: int8[2,1]) -> (%z#1) {
          %c = constant int8[2,2] [1, 3, 2, 4]
          %z: int8[2,5] = concatenate(%x, %c, %y, %x) {axis=1}
          %z#1: int8[5,2] = transpose(%z) {permutation=(1, 0)}
        }
        """,
    )


def test_different_transposes_stay() -> None:
    check_declined(
        reorder_permute_dims_after_concat,
        """\
        graph @g(%x: int8[1,4,4,2], %y: int8[1,2,4,4]) -> (%z) {
          %a: int8[1,2,4,4] = transpose(%x) {permutation=(0, 3, 1, 2)}
          %z: int8[1,4,4,4] = concatenate(%a, %y) {axis=1}
        }
        """,
        "not all transposed in the same way",
    )


def test_other_readers() -> None:
    check_declined(
        reorder_permute_dims_after_concat,
        """\
        graph @g(%x: int8[4,2], %y: int8[4,2]) -> (%z, %a) {
          %a: int8[2,4] = transpose(%x) {permutation=(1, 0)}
          %b: int8[2,4] = transpose(%y) {permutation=(1, 0)}
          %z: int8[4,4] = concatenate(%a, %b) {axis=0}
        }
        """,
        "other readers",
    )


def test_one_part_twice() -> None:
    check_declined(
        reorder_permute_dims_after_concat,
        """\
        graph @g(%x: int8[4,2]) -> (%z) {
          %a: int8[2,4] = transpose(%x) {permutation=(1, 0)}
          %z: int8[4,4] = concatenate(%a, %a) {axis=0}
        }
        """,
        "no transpose would be saved",
    )


def test_operands_in_the_epilogue() -> None:
    check_declined(
        reorder_permute_dims_after_concat,
        """\
        graph @g(%x: float32[4,2], %y: float32[4,2], %b: float32[4]) -> (%z) {
          %a: float32[2,4] = transpose(%x) {permutation=(1, 0)}
          %c: float32[2,4] = transpose(%y) {permutation=(1, 0)}
          %z: float32[4,4] = concatenate(%a, %c) {axis=0} | add(%b)
        }
        """,
        "its epilogue has operands",
    )
