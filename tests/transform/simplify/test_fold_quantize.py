"""Chains through floating point become what they are on 256 numbers."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import TextFormError
from microfold.ir.text import parse
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.lookup import Lookup
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
        graph @g(%i: int8[4] q(0.1, 3), %j: int8[4] q(0.1, 3)) -> (%y) {
          %x: int8[4] q(0.1, 3) = add(%i, %j)
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
        (
            "int8[4] q(0.01, 0)",
            ["%c: float32[4] = softmax(%a) {beta=1.0}", "%b: float32[4] = add(%a, %c)"],
            "%y",
            "softmax %c is not elementwise",
        ),
        (
            "int8[4] q(0.01, 0)",
            ["%k = constant float32[4] [1.0, 2.0, 3.0, 4.0]", "%b: float32[4] = mul(%a, %k)"],
            "%y",
            "more than one constant",
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
        "%x must have 8 or 16 bits and one scale; it is float32[4]",
    )


HARD_SWISH = """
  %three = constant int8[1] q(0.0234375, 0) [127]
  %sixth = constant int8[] q(0.0013, 0) [127]
  %a: int8[16,16] q(0.07, -20) = add(%x, %three)
  %b: int8[16,16] q(0.07, -20) = clip(%a) {minimum=0.0, maximum=6.0}
  %c: int8[16,16] q(0.05, -100) = mul(%x, %b)
  %y: int8[16,16] q(0.05, -100) = mul(%c, %sixth)
"""
TWO_TABLES = """
  %a: int8[16,16] q(0.0078125, 0) = tanh(%x)
  %y: int8[16,16] q(0.00390625, -128) = logistic(%a)
"""
WIDER = """
  %a: int8[16,16] q(0.0078125, 0) = tanh(%x)
  %y: int16[16,16] q(0.0001, 0) = requantize(%a)
"""
CHOICE = """
  %k = constant int8[1] q(0.1, 3) [10]
  %c: bool[16,16] = compare(%x, %k) {relation="less"}
  %a: int8[16,16] q(0.1, 3) = abs(%x)
  %y: int8[16,16] q(0.1, 3) = select(%c, %a, %k)
"""


@pytest.mark.parametrize("lines", [HARD_SWISH, TWO_TABLES, WIDER, CHOICE])
def test_chains_and_diamonds_of_integers(lines: str) -> None:
    before = parse(f"graph @g(%x: int8[16,16] q(0.1, 3)) -> (%y) {{ {lines} }}")
    after = fold_quantize(before)
    (node,) = after.nodes
    assert isinstance(node.op, Lookup)
    assert_same_meaning(before, after)
    assert fold_quantize(after) is after


def test_maximum_and_minimum_with_constants() -> None:
    check_rewrite(
        fold_quantize,
        """
        graph @g(%i: int8[4] q(0.1, 3), %j: int8[4] q(0.1, 3), %p: int16[4] q(0.01, 0)) -> (%y, %w) {
          %zero = constant int8[1] q(0.1, 3) [3]
          %six = constant int8[] q(0.1, 3) [63]
          %one = constant int16[1] q(0.01, 0) [100]
          %x: int8[4] q(0.1, 3) = add(%i, %j)
          %a: int8[4] q(0.1, 3) = maximum(%zero, %x)
          %y: int8[4] q(0.1, 3) = minimum(%a, %six)
          %v: int16[4] q(0.01, 0) = add(%p, %p)
          %w: int16[4] q(0.01, 0) = minimum(%v, %one)
        }
        """,
        """
        graph @g(%i: int8[4] q(0.1, 3), %j: int8[4] q(0.1, 3), %p: int16[4] q(0.01, 0)) -> (%y, %w) {
          %x: int8[4] q(0.1, 3) = add(%i, %j)
          %y: int8[4] q(0.1, 3) = clip(%x) {minimum=0.0, maximum=6.000000089406967}
          %v: int16[4] q(0.01, 0) = add(%p, %p)
          %w: int16[4] q(0.01, 0) = clip(%v) {minimum=-inf, maximum=0.9999999776482582}
        }
        """,
    )


def test_a_clip_that_nothing_takes_stays_a_table() -> None:
    check_declined(
        fold_quantize,
        """
        graph @g(%x: int8[4] q(0.1, 3)) -> (%y) {
          %zero = constant int8[1] q(0.1, 3) [3]
          %y: int8[4] q(0.1, 3) = maximum(%zero, %x)
        }
        """,
    )


def test_parts_that_are_read_elsewhere_are_left() -> None:
    graph = parse(
        """
        graph @g(%x: int8[16,16] q(0.1, 3)) -> (%y, %a) {
          %a: int8[16,16] q(0.0078125, 0) = tanh(%x)
          %b: int8[16,16] q(0.00390625, -128) = logistic(%a)
          %y: int8[16,16] q(0.01, 0) = requantize(%b)
        }
        """
    )
    after = fold_quantize(graph)
    assert [node.op.name for node in after.nodes] == ["tanh", "lookup"]
    assert_same_meaning(graph, after)


def test_random_chains() -> None:
    """Any elementwise operators and scales, values read twice among them: the same numbers come out."""
    rng = np.random.default_rng(3)
    fired = 0
    for _ in range(60):
        lines, names = [], ["x"]
        for index in range(rng.integers(1, 6)):
            scale, point = 2.0 ** rng.integers(-7, 1), rng.integers(-128, 128)
            first, second = (names[max(0, len(names) - 1 - rng.integers(0, 2))] for _ in range(2))
            q = f"q({scale}, {point})"
            lines.append(f"%k{index} = constant int8[1] {q} [{rng.integers(-128, 128)}]")
            expression = (
                f"add(%{first}, %k{index})",
                f"mul(%{first}, %{second})",
                f"sub(%k{index}, %{first})",
                f"leaky_relu(%{first}) {{alpha={rng.uniform(-1, 1):.3f}}}",
                f"hard_swish(%{first})",
                f"requantize(%{first})",
            )[rng.integers(6)]
            lines.append(f"%v{index}: int8[16,16] {q} = {expression}")
            names.append(f"v{index}")
        try:
            before = parse(f"graph @g(%x: int8[16,16] q(0.5, 3)) -> (%{names[-1]}) {{ {' '.join(lines)} }}")
        except TextFormError:
            continue  # an operator without a multiplier for these scales
        after = fold_quantize(before)
        fired += after is not before
        assert_same_meaning(before, after, calls=1)
        assert fold_quantize(after) is after
    assert fired > 25


def test_copies_are_for_storage() -> None:
    check_declined(
        fold_quantize,
        """
        graph @g(%x: int8[4] q(0.1, 3)) -> (%y) {
          %y: int8[4] q(0.1, 3) = copy(%x)
        }
        """,
    )
