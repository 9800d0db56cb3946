"""Chains through floating point become what they are on 256 numbers."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.text import parse
from microfold.ops.elementwise.lookup import Lookup
from microfold.ops.elementwise.requantize import Requantize
from microfold.transform.simplify.fold_quantize import fold_quantize
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

UNARY = [
    "tanh(%a)",
    "logistic(%a)",
    'unary(%a) {function="exp"}',
    "hard_swish(%a)",
    "leaky_relu(%a) {alpha=0.1}",
]


def test_there_and_back() -> None:
    check_rewrite(
        fold_quantize,
        """
        graph @g(%x: int8[4] q(0.1, 3), %i: int16[4] q(0.01, 0)) -> (%y, %z) {
          %a: float32[4] = dequantize(%x)
          %y: int8[4] q(0.1, 3) = quantize(%a)
          %b: float32[4] = dequantize(%i)
          %z: int16[4] q(0.01, 0) = quantize(%b)
        }
        """,
        """
        graph @g(%x: int8[4] q(0.1, 3), %i: int16[4] q(0.01, 0)) -> (%x, %i) {
        }
        """,
    )


def test_another_scale() -> None:
    check_rewrite(
        fold_quantize,
        """
        graph @g(%x: int8[4] q(0.2, 3)) -> (%y) {
          %a: float32[4] = dequantize(%x)
          %y: int8[4] q(0.1, 5) = quantize(%a) | clip() {minimum=0.0, maximum=6.0}
        }
        """,
        """
        graph @g(%x: int8[4] q(0.2, 3)) -> (%y) {
          %y: int8[4] q(0.1, 5) = requantize(%x) | clip() {minimum=0.0, maximum=6.0}
        }
        """,
    )


@pytest.mark.parametrize("function", UNARY)
def test_functions_become_tables(function: str) -> None:
    before = parse(
        f"""
        graph @g(%x: int8[16,16] q(0.03, 3)) -> (%y) {{
          %a: float32[16,16] = dequantize(%x)
          %b: float32[16,16] = {function}
          %half = constant float32[1] [0.5]
          %c: float32[16,16] = mul(%half, %b)
          %y: int8[16,16] q(0.011, -5) = quantize(%c)
        }}
        """
    )
    after = fold_quantize(before)
    (node,) = after.nodes
    assert isinstance(node.op, Lookup)
    assert_same_meaning(before, after)
    assert fold_quantize(after) is after


def test_a_requantize_of_other_bits_is_a_table() -> None:
    # Where the float and the integer way round a number differently, requantize would not be exact.
    rng = np.random.default_rng(0)
    kinds = set()
    for _ in range(200):
        scales = rng.integers(1, 40, 2) / 64
        before = parse(
            f"""
            graph @g(%x: int8[16,16] q({scales[0]}, 3)) -> (%y) {{
              %a: float32[16,16] = dequantize(%x)
              %y: int8[16,16] q({scales[1]}, 0) = quantize(%a)
            }}
            """
        )
        after = fold_quantize(before)
        kinds.add(type(after.nodes[0].op))
        assert_same_meaning(before, after, calls=1)
    assert kinds == {Lookup, Requantize}


@pytest.mark.parametrize(
    "first",
    ["%a: int8[16,16] q(0.4, -100) = requantize(%x)", "%a: int8[16,16] q(0.00390625, -128) = logistic(%x)"],
)
def test_requantize_behind_another_function(first: str) -> None:
    before = parse(
        f"""
        graph @g(%x: int8[16,16] q(0.1, 3)) -> (%y) {{
          {first}
          %y: uint8[16,16] q(0.1, 3) = requantize(%a)
        }}
        """
    )
    after = fold_quantize(before)
    (node,) = after.nodes
    assert isinstance(node.op, Lookup)
    assert_same_meaning(before, after)


def test_requantize_behind_a_clip() -> None:
    check_declined(
        fold_quantize,
        """
        graph @g(%x: int8[4] q(0.1, 3)) -> (%y) {
          %a: int8[4] q(0.1, 3) = clip(%x) {minimum=0.0, maximum=6.0}
          %y: int8[4] q(0.2, 3) = requantize(%a)
        }
        """,
    )


def test_dequantize_with_other_readers() -> None:
    check_rewrite(
        fold_quantize,
        """
        graph @g(%x: int8[4] q(0.1, 3)) -> (%a, %y) {
          %a: float32[4] = dequantize(%x)
          %y: int8[4] q(0.1, 3) = quantize(%a)
        }
        """,
        """
        graph @g(%x: int8[4] q(0.1, 3)) -> (%a, %x) {
          %a: float32[4] = dequantize(%x)
        }
        """,
    )


@pytest.mark.parametrize(
    ("source", "lines", "outputs", "reason"),
    [
        ("int16[4] q(0.01, 0)", ["%b: float32[4] = tanh(%a)"], "%y", "a table would have 65536 entries"),
        ("int8[4] q(0.01, 0)", ["%b: float32[4] = tanh(%a)"], "%y, %b", "tanh %b has other readers"),
        ("int8[4] q(0.01, 0)", ["%b: float32[4] = softmax(%a) {beta=1.0}"], "%y", "is not elementwise"),
        ("int8[4] q(0.01, 0)", ["%b: float32[4] = add(%a, %a)"], "%y", "more than one number"),
        (
            "int8[4] q(0.01, 0)",
            ["%k = constant float32[4] [1.0, 2.0, 3.0, 4.0]", "%b: float32[4] = mul(%a, %k)"],
            "%y",
            "more than one number",
        ),
        (
            "int8[4] q(axis=0, scales=[0.1, 0.2, 0.3, 0.4], zero_points=0)",
            ["%b: float32[4] = abs(%a)"],
            "%y",
            "one scale",
        ),
    ],
)
def test_declined(source: str, lines: list[str], outputs: str, reason: str) -> None:
    check_declined(
        fold_quantize,
        f"""
        graph @g(%x: {source}) -> ({outputs}) {{
          %a: float32[4] = dequantize(%x)
          {" ".join(lines)}
          %y: int8[4] q(0.0078125, 0) = quantize(%b)
        }}
        """,
        reason,
    )


def test_constants_are_left_to_fold_constant() -> None:
    check_declined(
        fold_quantize,
        """
        graph @g(%x: int8[2] q(0.1, 3)) -> (%y, %z) {
          %c = constant int8[2] q(0.1, 3) [1, 2]
          %a: int8[2] q(0.2, 3) = requantize(%c)
          %y: int8[2] q(0.4, 3) = requantize(%a)
          %f: float32[2] = dequantize(%c)
          %z: int8[2] q(0.1, 3) = quantize(%f)
        }
        """,
        "%c is constant",
    )


def test_computed_floats() -> None:
    check_declined(
        fold_quantize,
        """
        graph @g(%x: float32[4]) -> (%y) {
          %y: int8[4] q(0.0078125, 0) = quantize(%x)
        }
        """,
        "no node computes",
    )
