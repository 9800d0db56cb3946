from __future__ import annotations

from microfold.transform.simplify.remove_redundant_reshape import remove_redundant_reshape
from tests.transform.check import check_declined, check_rewrite


def test_in_a_row() -> None:
    """A reshape that something else reads too stays for it."""
    check_rewrite(
        remove_redundant_reshape,
        """
        graph @g(%x: int8[2,4] q(0.1, 3)) -> (%a, %y, %z) {
          %a: int8[8] q(0.1, 3) = reshape(%x) {shape=(8,)}
          %b: int8[1,8] q(0.1, 3) = reshape(%a) {shape=(1, 8)}
          %y: int8[4,2] q(0.1, 3) = reshape(%b) {shape=(4, 2)}
          %c: int8[2,4] q(0.1, 3) = reshape(%b) {shape=(2, 4)}
          %z: int8[2,4] q(0.1, 3) = clip(%c) {minimum=0.0, maximum=1.0}
        }
        """,
        """
        graph @g(%x: int8[2,4] q(0.1, 3)) -> (%a, %y, %z) {
          %a: int8[8] q(0.1, 3) = reshape(%x) {shape=(8,)}
          %y: int8[4,2] q(0.1, 3) = reshape(%x) {shape=(4, 2)}
          %z: int8[2,4] q(0.1, 3) = clip(%x) {minimum=0.0, maximum=1.0}
        }
        """,
    )


def test_what_stays() -> None:
    check_declined(
        remove_redundant_reshape,
        """
        graph @g(%x: float32[2,4]) -> (%c) {
          %a: float32[8] = reshape(%x) {shape=(8,)} | clip() {minimum=0.0, maximum=1.0}
          %c: float32[2,4] = reshape(%a) {shape=(2, 4)}
        }
        """,
        "and is no reshape",
    )
