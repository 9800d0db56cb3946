"""Approximations: on request, within their bounds, and the same in the generated code."""

from __future__ import annotations

import numpy as np

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.text import parse
from microfold.ops.elementwise import fast_math as functions
from microfold.ops.elementwise.unary import Unary
from microfold.passes.context import PassContext
from microfold.transform.relaxed.fast_math import fast_math
from microfold.verification import verify
from tests.transform.check import check_declined, check_rewrite

RELAXED = PassContext(numerics="relaxed")
EVERYTHING = """
    graph @g(%x: float32[4,8]) -> (%a, %b, %c, %d) {
      %a: float32[4,8] = unary(%x) {function="exp"}
      %b: float32[4,8] = tanh(%x)
      %c: float32[4,8] = logistic(%x)
      %d: float32[4,8] = softmax(%x) {beta=0.5}
    }
    """


def grid(low: float, high: float) -> np.ndarray:
    dense = np.linspace(low, high, 400_001).astype(np.float32)
    small = np.geomspace(1e-20, 1, 1000).astype(np.float32)
    return np.concatenate([dense, small, -small])


def test_exp_within_its_bound() -> None:
    x = grid(-87, 88)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(functions.exp(x) / exact - 1).max() < 4e-7
    ends = functions.exp(np.array([-1e30, -np.inf, -87, 88, 1e30, np.inf], np.float32))
    assert np.array_equal(ends[[0, 1, 4, 5]], ends[[2, 2, 3, 3]])
    assert np.isfinite(ends).all()
    assert np.isnan(functions.exp(np.array([np.nan], np.float32))).all()


def test_logistic_and_tanh_within_their_bounds() -> None:
    x = grid(-100, 100)
    wide = x.astype(np.float64)
    assert np.abs(functions.tanh(x) - np.tanh(wide)).max() < 4e-7
    with np.errstate(over="ignore"):
        assert np.abs(functions.logistic(x) - 1 / (1 + np.exp(-wide))).max() < 4e-7


def test_every_function() -> None:
    after = """
        graph @g(%x: float32[4,8]) -> (%a, %b, %c, %d) {
          %a: float32[4,8] = unary(%x) {function="fast_exp"}
          %b: float32[4,8] = unary(%x) {function="fast_tanh"}
          %c: float32[4,8] = unary(%x) {function="fast_logistic"}
          %d: float32[4,8] = fast_softmax(%x) {beta=0.5}
        }
        """
    check_rewrite(fast_math, EVERYTHING, after, RELAXED, tolerance=1e-6)


def test_exact_numerics() -> None:
    check_declined(fast_math, EVERYTHING, "numerics must be relaxed")


def test_integers_have_tables() -> None:
    decisions = []
    graph = parse(
        """
        graph @g(%x: int8[4] q(0.1, 3)) -> (%y) {
          %y: int8[4] q(0.00390625, -128) = logistic(%x)
        }
        """
    )
    assert fast_math(graph, PassContext(numerics="relaxed", sink=decisions.append)) is graph
    assert "int8" in decisions[0].reason


def test_other_functions_stay() -> None:
    graph = parse(
        """
        graph @g(%x: float32[4]) -> (%y) {
          %y: float32[4] = unary(%x) {function="log"}
        }
        """
    )
    assert fast_math(graph, RELAXED) is graph
    assert isinstance(graph.nodes[0].op, Unary)


def test_generated_code() -> None:
    program = compile_graph(fast_math(parse(EVERYTHING), RELAXED), target.load("host"))
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 4))
    assert result.exact, result.differences
