"""Matrices are multiplied in the cheaper order."""

from __future__ import annotations

import itertools

import pytest

from microfold.ir.text import parse
from microfold.transform.matmul.adjust_matmul_order import adjust_matmul_order
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

PLAIN = "{transpose_first=false, transpose_second=false}"


def test_from_the_left_to_the_right() -> None:
    check_rewrite(
        adjust_matmul_order,
        f"""
        graph @g(%a: float32[2,8,2], %b: float32[2,8], %c: float32[8,3]) -> (%y) {{
          %p: float32[2,8,8] = batch_matmul(%a, %b) {PLAIN}
          %y: float32[2,8,3] = batch_matmul(%p, %c) {PLAIN} | clip() {{minimum=0.0, maximum=6.0}}
        }}
        """,
        f"""
        graph @g(%a: float32[2,8,2], %b: float32[2,8], %c: float32[8,3]) -> (%y) {{
          %p: float32[2,3] = batch_matmul(%b, %c) {PLAIN}
          %y: float32[2,8,3] = batch_matmul(%a, %p) {PLAIN} | clip() {{minimum=0.0, maximum=6.0}}
        }}
        """,
        tolerance=1e-5,
    )


@pytest.mark.parametrize("flags", list(itertools.product(["true", "false"], repeat=4)))
@pytest.mark.parametrize("left", [True, False])
def test_every_transposition(flags: tuple[str, ...], left: bool) -> None:
    def shape(rows: int, columns: int, turned: str) -> str:
        return f"{columns},{rows}" if turned == "true" else f"{rows},{columns}"

    turn_a, turn_b, turn_p, turn_c = flags
    # The product [8, 8] of rank 2 is what the other order avoids.
    types = f"%a: float32[{shape(8, 2, turn_a)}], %b: float32[{shape(2, 8, turn_b)}]"
    c = shape(8, 3, turn_c) if left else shape(3, 8, turn_c)
    outer = f"(%p, %c) {{transpose_first={turn_p}, transpose_second={turn_c}}}"
    if not left:
        outer = f"(%c, %p) {{transpose_first={turn_c}, transpose_second={turn_p}}}"
    before = parse(
        f"""
        graph @g({types}, %c: float32[{c}]) -> (%y) {{
          %p: float32[8,8] = batch_matmul(%a, %b) {{transpose_first={turn_a}, transpose_second={turn_b}}}
          %y: float32[{"8,3" if left else "3,8"}] = batch_matmul{outer}
        }}
        """
    )
    after = adjust_matmul_order(before)
    assert sum(node.macs() for node in after.nodes) == 2 * 8 * 3 * 2
    assert_same_meaning(before, after, tolerance=1e-5)
    assert adjust_matmul_order(after) is after


def test_layers_with_nothing_between() -> None:
    check_rewrite(
        adjust_matmul_order,
        """
        graph @g(%x: float32[1,2]) -> (%y) {
          %v = constant float32[4,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
          %b = constant float32[4] [1.0, 1.0, 1.0, 1.0]
          %h: float32[1,4] = fully_connected(%x, %v, %b)
          %w = constant float32[1,4] [1.0, -1.0, 1.0, 1.0]
          %c = constant float32[1] [5.0]
          %y: float32[1,1] = fully_connected(%h, %w, %c)
        }
        """,
        """
        graph @g(%x: float32[1,2]) -> (%y) {
          %y_weights = constant float32[1,2] [10.0, 12.0]
          %y_bias = constant float32[1] [7.0]
          %y: float32[1,1] = fully_connected(%x, %y_weights, %y_bias)
        }
        """,
        tolerance=1e-6,
    )


def test_constant_factors_cost_nothing() -> None:
    check_rewrite(
        adjust_matmul_order,
        f"""
        graph @g(%x: float32[1,2]) -> (%y) {{
          %v = constant float32[2,2] [1.0, 2.0, 3.0, 4.0]
          %w = constant float32[2,2] [5.0, 6.0, 7.0, 8.0]
          %p: float32[1,2] = batch_matmul(%x, %v) {PLAIN}
          %y: float32[1,2] = batch_matmul(%p, %w) {PLAIN}
        }}
        """,
        f"""
        graph @g(%x: float32[1,2]) -> (%y) {{
          %p = constant float32[2,2] [19.0, 22.0, 43.0, 50.0]
          %y: float32[1,2] = batch_matmul(%x, %p) {PLAIN}
        }}
        """,
        tolerance=1e-6,
    )


@pytest.mark.parametrize(
    ("element", "shapes", "outputs", "reason"),
    [
        ("float32{}", ("2,8", "8,2", "2,9", "2,2", "2,9"), "%y", "the other order needs"),
        ("float32{}", ("8,2", "2,8", "8,3", "8,8", "8,3"), "%y, %p", "other readers"),
        ("int8{} q(0.1, 3)", ("8,2", "2,8", "8,3", "8,8", "8,3"), "%y", "rounded to int8"),
    ],
)
def test_declined(element: str, shapes: tuple[str, ...], outputs: str, reason: str) -> None:
    a, b, c, p, y = (element.format(f"[{shape}]") for shape in shapes)
    check_declined(
        adjust_matmul_order,
        f"""
        graph @g(%a: {a}, %b: {b}, %c: {c}) -> ({outputs}) {{
          %p: {p} = batch_matmul(%a, %b) {PLAIN}
          %y: {y} = batch_matmul(%p, %c) {PLAIN}
        }}
        """,
        reason,
    )


def test_a_narrow_layer_between() -> None:
    check_declined(
        adjust_matmul_order,
        """
        graph @g(%x: float32[1,3]) -> (%y) {
          %v = constant float32[1,3] [1.0, 2.0, 3.0]
          %h: float32[1,1] = fully_connected(%x, %v)
          %w = constant float32[3,1] [1.0, -1.0, 1.0]
          %y: float32[1,3] = fully_connected(%h, %w)
        }
        """,
        "has 9 elements; the factors have 6",
    )


def test_a_product_of_constants_that_no_float32_holds() -> None:
    """Where the input is small enough, the other order gives finite results."""
    graph = f"""
    graph @g(%x: float32[1,2]) -> (%y) {{
      %a = constant float32[2,2] [1e+30, 0.0, 0.0, 1e+30]
      %b = constant float32[2,2] [1e+30, 0.0, 0.0, 1e+30]
      %p: float32[1,2] = batch_matmul(%x, %a) {PLAIN}
      %y: float32[1,2] = batch_matmul(%p, %b) {PLAIN}
    }}
    """
    check_declined(adjust_matmul_order, graph, "would have elements beyond the range of float32")
