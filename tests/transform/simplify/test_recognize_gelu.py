"""GELU that is spelled out becomes one operator."""

from __future__ import annotations

import pytest

from microfold.transform.simplify.recognize_gelu import recognize_gelu
from tests.transform.check import check_declined, check_rewrite

CONSTANTS = """
  %half = constant float32[] [0.5]
  %one = constant float32[1] [1.0]
  %cubic = constant float32[] [0.044715]
  %scale = constant float32[1,1] [0.7978846]
  %both = constant float32[] [0.035677407]
"""
# As Keras, PyTorch and others write it; %x is itself a sum, so that there are two values to take for x.
SPELLINGS = {
    "keras": """
  %h: float32[2,8] = mul(%half, %x)
  %s: float32[2,8] = mul(%x, %x)
  %p: float32[2,8] = mul(%s, %x)
  %c: float32[2,8] = mul(%cubic, %p)
  %a: float32[2,8] = add(%x, %c)
  %u: float32[2,8] = mul(%scale, %a)
  %t: float32[2,8] = tanh(%u)
  %o: float32[2,8] = add(%one, %t)
  %y: float32[2,8] = mul(%h, %o)
""",
    "half_last": """
  %s: float32[2,8] = unary(%x) {function="square"}
  %c: float32[2,8] = mul(%s, %cubic)
  %q: float32[2,8] = add(%c, %one)
  %k: float32[2,8] = mul(%q, %x)
  %u: float32[2,8] = mul(%k, %scale)
  %t: float32[2,8] = tanh(%u)
  %o: float32[2,8] = add(%t, %one)
  %m: float32[2,8] = mul(%o, %x)
  %y: float32[2,8] = mul(%m, %half)
""",
    "scaled_apart": """
  %f: float32[2,8] = mul(%x, %scale)
  %s: float32[2,8] = unary(%x) {function="square"}
  %p: float32[2,8] = mul(%s, %x)
  %c: float32[2,8] = mul(%p, %both)
  %u: float32[2,8] = add(%f, %c)
  %t: float32[2,8] = tanh(%u)
  %o: float32[2,8] = add(%t, %one)
  %m: float32[2,8] = mul(%o, %half)
  %y: float32[2,8] = mul(%x, %m)
""",
}


def _graph(body: str) -> str:
    return f"graph @g(%i: float32[2,8]) -> (%y) {{ {CONSTANTS} %x: float32[2,8] = add(%i, %one) {body} }}"


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str) -> None:
    after = """
graph @g(%i: float32[2,8]) -> (%y) {
  %one = constant float32[1] [1.0]
  %x: float32[2,8] = add(%i, %one)
  %y: float32[2,8] = unary(%x) {function="gelu_tanh"}
}
"""
    decisions = check_rewrite(recognize_gelu, _graph(SPELLINGS[name]), after, tolerance=1e-5)
    assert [str(d) for d in decisions] == [
        "recognize_gelu: mul %y: with tanh %t, it is the GELU of %x",
    ]


def test_other_polynomials() -> None:
    text = _graph(SPELLINGS["keras"].replace("mul(%cubic, %p)", "mul(%half, %p)"))
    check_declined(recognize_gelu, text, "its argument is not sqrt(2/pi) (x + 0.044715 x^3) of a value x")


def test_other_readers() -> None:
    text = _graph(SPELLINGS["keras"]).replace("(%y)", "(%y, %t)")
    check_declined(recognize_gelu, text, "its only reader must be the sum with 1")
    text = _graph(SPELLINGS["keras"]).replace("(%y)", "(%y, %o)")
    check_declined(recognize_gelu, text, "its result is not multiplied by x / 2, for x = %x")


def test_another_factor() -> None:
    text = _graph(SPELLINGS["keras"].replace("mul(%half, %x)", "mul(%cubic, %x)"))
    check_declined(recognize_gelu, text, "its result is not multiplied by x / 2, for x = %x")


def test_a_tanh_of_something_else() -> None:
    text = "graph @g(%x: float32[8]) -> (%y) { %y: float32[8] = tanh(%x) }"
    check_declined(recognize_gelu, text, "its argument is not")
