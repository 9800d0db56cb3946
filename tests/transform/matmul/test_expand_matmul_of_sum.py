"""Products are distributed over sums."""

from __future__ import annotations

import itertools

import pytest

from microfold.ir.text import parse
from microfold.transform.matmul.expand_matmul_of_sum import expand_matmul_of_sum
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

PLAIN = "{transpose_first=false, transpose_second=false}"


def test_constant_row() -> None:
    check_rewrite(
        expand_matmul_of_sum,
        f"""
        graph @g(%x: float32[2,3]) -> (%y) {{
          %c = constant float32[3] [1.0, 2.0, 3.0]
          %s: float32[2,3] = add(%c, %x)
          %w = constant float32[3,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
          %y: float32[2,2] = batch_matmul(%s, %w) {PLAIN} | clip() {{minimum=0.0, maximum=6.0}}
        }}
        """,
        f"""
        graph @g(%x: float32[2,3]) -> (%y) {{
          %w = constant float32[3,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
          %s: float32[2,2] = batch_matmul(%x, %w) {PLAIN}
          %c = constant float32[1,2] [22.0, 28.0]
          %y: float32[2,2] = add(%s, %c) | clip() {{minimum=0.0, maximum=6.0}}
        }}
        """,
        tolerance=1e-5,
    )


def test_constant_first_factor() -> None:
    check_rewrite(
        expand_matmul_of_sum,
        """
        graph @g(%x: float32[2,3]) -> (%y) {
          %c = constant float32[1,3] [1.0, 2.0, 3.0]
          %s: float32[2,3] = add(%x, %c)
          %a = constant float32[3,1] [1.0, 2.0, 3.0]
          %y: float32[1,2] = batch_matmul(%a, %s) {transpose_first=true, transpose_second=true}
        }
        """,
        """
        graph @g(%x: float32[2,3]) -> (%y) {
          %a = constant float32[3,1] [1.0, 2.0, 3.0]
          %s: float32[1,2] = batch_matmul(%a, %x) {transpose_first=true, transpose_second=true}
          %c = constant float32[1,1] [14.0]
          %y: float32[1,2] = add(%s, %c)
        }
        """,
        tolerance=1e-5,
    )


@pytest.mark.parametrize("flags", list(itertools.product(["true", "false"], repeat=4)))
@pytest.mark.parametrize("index", [0, 1])
def test_low_rank(flags: tuple[str, ...], index: int) -> None:
    def shape(rows: int, columns: int, turned: str) -> str:
        return f"{columns},{rows}" if turned == "true" else f"{rows},{columns}"

    turn_b, turn_a, turn_s, turn_x = flags
    x = shape(2, 8, turn_x) if index else shape(8, 2, turn_x)
    pair = f"%x, %s) {{transpose_first={turn_x}, transpose_second={turn_s}}}"
    if not index:
        pair = f"%s, %x) {{transpose_first={turn_s}, transpose_second={turn_x}}}"
    before = parse(
        f"""
        graph @g(%x: float32[{x}], %b: float32[{shape(8, 1, turn_b)}], %a: float32[{shape(1, 8, turn_a)}]) -> (%y) {{
          %w = constant float32[8,8] [{", ".join(str(float(i % 7 - 3)) for i in range(64))}]
          %d: float32[8,8] = batch_matmul(%b, %a) {{transpose_first={turn_b}, transpose_second={turn_a}}}
          %s: float32[8,8] = add(%w, %d)
          %y: float32[{"2,8" if index else "8,2"}] = batch_matmul({pair}
        }}
        """  # noqa: E501
    )
    after = expand_matmul_of_sum(before)
    assert sum(node.macs() for node in after.nodes) == 2 * 8 * 8 + 2 * 2 * 8
    assert_same_meaning(before, after, tolerance=1e-5)
    assert expand_matmul_of_sum(after) is after


@pytest.mark.parametrize(
    ("element", "columns", "outputs", "reason"),
    [
        ("float32{}", 3, "%y", "its result has 6 elements, the sum 6"),
        ("float32{}", 2, "%y, %s", "other readers"),
        ("int8{} q(0.1, 3)", 2, "%y", "rounded to int8"),
    ],
)
def test_declined(element: str, columns: int, outputs: str, reason: str) -> None:
    decimal = ".0" if element.startswith("float") else ""
    weights = ", ".join(f"{i}{decimal}" for i in range(3 * columns))
    check_declined(
        expand_matmul_of_sum,
        f"""
        graph @g(%x: {element.format("[2,3]")}) -> ({outputs}) {{
          %c = constant {element.format("[3]")} [1{decimal}, 2{decimal}, 3{decimal}]
          %s: {element.format("[2,3]")} = add(%x, %c)
          %w = constant {element.format(f"[3,{columns}]")} [{weights}]
          %y: {element.format(f"[2,{columns}]")} = batch_matmul(%s, %w) {PLAIN}
        }}
        """,
        reason,
    )
