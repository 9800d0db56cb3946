"""Powers with small constant exponents become products and roots."""

from __future__ import annotations

import pytest

from microfold.transform.simplify.expand_pow import expand_pow
from tests.transform.check import check_declined, check_rewrite

GRAPH = """
graph @g(%x: float32[2,4]) -> (%y) {{
  %s: float32[2,4] = abs(%x)
  %e = constant float32[] [{}]
  %y: float32[2,4] = pow(%s, %e)
}}
"""


@pytest.mark.parametrize(
    ("exponent", "lines"),
    [
        (2.0, ['%y: float32[2,4] = unary(%s) {function="square"}']),
        (0.5, ['%y: float32[2,4] = unary(%s) {function="sqrt"}']),
        (-0.5, ["%y: float32[2,4] = rsqrt(%s)"]),
        (
            3.0,
            [
                '%y_square: float32[2,4] = unary(%s) {function="square"}',
                "%y: float32[2,4] = mul(%y_square, %s)",
            ],
        ),
        (-1.0, ["%y_one = constant float32[] [1.0]", "%y: float32[2,4] = div(%y_one, %s)"]),
    ],
)
def test_exponents(exponent: float, lines: list[str]) -> None:
    body = "\n  ".join(["%s: float32[2,4] = abs(%x)", *lines])
    after = f"""
graph @g(%x: float32[2,4]) -> (%y) {{
  {body}
}}
"""
    decisions = check_rewrite(expand_pow, GRAPH.format(exponent), after, tolerance=1e-6)
    assert decisions[0].reason == f"to the power of {exponent:g}"


def test_one() -> None:
    after = """
graph @g(%x: float32[2,4]) -> (%s) {
  %s: float32[2,4] = abs(%x)
}
"""
    check_rewrite(expand_pow, GRAPH.format(1.0), after)


def test_others_are_left() -> None:
    check_declined(expand_pow, GRAPH.format(1.5), "to the power of 1.5 needs the library function")
    text = GRAPH.format(2.0).replace("float32[] [2.0]", "float32[4] [2.0, 2.0, 2.0, 3.0]")
    check_declined(expand_pow, text, "its exponents are not all the same")
    text = GRAPH.format(2.0).replace("pow(%s, %e)", "pow(%s, %x)")
    check_declined(expand_pow, text, "its exponent is not constant")


def test_integers_are_left() -> None:
    check_declined(
        expand_pow,
        """
        graph @g(%x: int32[4]) -> (%y) {
          %e = constant int32[] [2]
          %y: int32[4] = pow(%x, %e)
        }
        """,
    )
