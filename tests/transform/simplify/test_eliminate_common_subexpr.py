from __future__ import annotations

from microfold.transform.simplify.eliminate_common_subexpr import (
    EliminateCommonSubexpr,
    eliminate_common_subexpr,
)
from tests.transform.check import check_declined, check_rewrite


def test_equal_nodes_in_a_row() -> None:
    check_rewrite(
        eliminate_common_subexpr,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %a: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
          %b: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
          %c: float32[2] = add(%a, %b)
          %d: float32[2] = add(%b, %a)
          %y: float32[2] = add(%c, %d)
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %a: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
          %c: float32[2] = add(%a, %a)
          %y: float32[2] = add(%c, %c)
        }
        """,
    )


def test_equal_constants() -> None:
    check_rewrite(
        eliminate_common_subexpr,
        """
        graph @g(%x: float32[2]) -> (%y, %b) {
          %k = constant float32[2] [1.0, 2.0]
          %a: float32[2] = add(%x, %k)
          %l = constant float32[2] [1.0, 2.0]
          %b: float32[2] = add(%x, %l)
          %y: float32[2] = add(%a, %b)
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%y, %a) {
          %k = constant float32[2] [1.0, 2.0]
          %a: float32[2] = add(%x, %k)
          %y: float32[2] = add(%a, %a)
        }
        """,
    )


def test_what_differs_stays() -> None:
    # Attributes, epilogues, the sign of zero, types of constants: each makes a different node.
    check_declined(
        eliminate_common_subexpr,
        """
        graph @g(%x: int8[2] q(0.1, 0), %f: float32[2]) -> (%a, %b, %c, %d, %e, %h, %i) {
          %k = constant int8[2] q(0.1, 0) [1, 2]
          %a: int8[2] q(0.1, 0) = add(%x, %k)
          %l = constant int8[2] q(0.2, 0) [1, 2]
          %b: int8[2] q(0.1, 0) = add(%x, %l)
          %c: int8[2] q(0.2, 0) = add(%x, %k)
          %d: int8[2] q(0.1, 0) = add(%x, %k) | clip() {minimum=0.0, maximum=6.0}
          %e: int8[2] q(0.1, 0) = add(%k, %x)
          %h: float32[2] = clip(%f) {minimum=0.0, maximum=6.0}
          %i: float32[2] = clip(%f) {minimum=-0.0, maximum=6.0}
        }
        """,
    )


def test_nodes_and_constants_that_a_caller_leaves() -> None:
    text = """
        graph @g(%x: float32[2]) -> (%d, %e, %f) {
          %k = constant float32[2] [1.0, 2.0]
          %m = constant float32[2] [1.0, 2.0]
          %a: float32[2] = abs(%x)
          %b: float32[2] = abs(%x)
          %d: float32[2] = add(%a, %k)
          %e: float32[2] = add(%b, %k)
          %f: float32[2] = add(%b, %m)
        }
        """
    check_rewrite(
        EliminateCommonSubexpr(call_only=True),
        text,
        """
        graph @g(%x: float32[2]) -> (%d, %d, %f) {
          %a: float32[2] = abs(%x)
          %k = constant float32[2] [1.0, 2.0]
          %d: float32[2] = add(%a, %k)
          %m = constant float32[2] [1.0, 2.0]
          %f: float32[2] = add(%a, %m)
        }
        """,
    )
    check_declined(
        EliminateCommonSubexpr(fskip=lambda node: node.op.name == "abs", call_only=True),
        text.replace("(%a, %k)", "(%a, %a)"),
        "fskip excludes it",
    )
