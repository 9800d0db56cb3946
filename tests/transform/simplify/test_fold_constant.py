from __future__ import annotations

import sys

import pytest

from microfold.ir.text import parse
from microfold.passes.context import Decision, PassContext
from microfold.transform.simplify.fold_constant import _Budget, fold_constant
from tests.transform.check import check_declined, check_rewrite

module = sys.modules["microfold.transform.simplify.fold_constant"]  # the package has the pass by that name


def test_chain_of_constants() -> None:
    check_rewrite(
        fold_constant,
        """
        graph @g(%x: int32[2]) -> (%y) {
          %a = constant int32[2] [1, 2]
          %b = constant int32[2] [10, 20]
          %c: int32[2] = add(%a, %b)
          %d: int32[2] = add(%c, %b)
          %y: int32[2] = add(%x, %d)
        }
        """,
        """
        graph @g(%x: int32[2]) -> (%y) {
          %d = constant int32[2] [21, 42]
          %y: int32[2] = add(%x, %d)
        }
        """,
    )


def test_epilogue_and_output() -> None:
    check_rewrite(
        fold_constant,
        """
        graph @g(%x: float32[2]) -> (%c) {
          %a = constant float32[2] [1.0, 2.5]
          %c: float32[2] = add(%a, %a) | clip() {minimum=0.0, maximum=4.0}
        }
        """,
        """
        graph @g(%x: float32[2]) -> (%c) {
          %c = constant float32[2] [2.0, 4.0]
        }
        """,
    )


def test_subgraphs_are_folded_too() -> None:
    check_rewrite(
        fold_constant,
        """
        graph @g(%x: int32[1]) -> (%x) {
          subgraph @body = graph @body() -> (%c) {
            %a = constant int32[1] [3]
            %c: int32[1] = add(%a, %a)
          }
        }
        """,
        """
        graph @g(%x: int32[1]) -> (%x) {
          subgraph @body = graph @body() -> (%c) {
            %c = constant int32[1] [6]
          }
        }
        """,
    )


def test_result_must_not_outgrow_its_operands() -> None:
    check_declined(
        fold_constant,
        """
        graph @g() -> (%p) {
          %a = constant float32[1,2] [1.0, 2.0]
          %p: float32[20,20] = pad(%a) {padding=((19, 0), (18, 0)), fill=0.0}
        }
        """,
        "1600 bytes of flash",
    )


def test_variable_operand() -> None:
    check_declined(
        fold_constant,
        """
        graph @g(%x: int32[1]) -> (%y) {
          %a = constant int32[1] [3]
          %y: int32[1] = add(%x, %a)
        }
        """,
        "%x is not constant",
    )


def test_state_is_not_constant() -> None:
    check_declined(
        fold_constant,
        """
        graph @g() -> (%y) {
          state %s: int32[1] initial [5] next %s
          %a = constant int32[1] [3]
          %y: int32[1] = add(%s, %a)
        }
        """,
        "%s is not constant",
    )


def test_calls_are_folded() -> None:
    body = """
          subgraph @f = graph @f(%p: int32[]) -> (%d) {
            %c = constant int32[] [3]
            %d: int32[] = add(%p, %c)
          }
        }
        """
    check_rewrite(
        fold_constant,
        """
        graph @g() -> (%b) {
          %a = constant int32[] [4]
          %b: int32[] = call(%a) {body="f", composite="", compiler="", stateful=false}"""
        + body,
        """
        graph @g() -> (%b) {
          %b = constant int32[] [7]"""
        + body,
    )


def test_loops_are_not_run() -> None:
    check_declined(
        fold_constant,
        """
        graph @g(%x: int32[]) -> (%a, %b) {
          %four = constant int32[] [4]
          %a: int32[] = call(%four) {body="endless", composite="", compiler="", stateful=false}
          %b: int32[] = while(%four) {condition="test", body="step"}
          subgraph @endless = graph @endless(%p: int32[]) -> (%q) {
            %q: int32[] = while(%p) {condition="test", body="step"}
            subgraph @test = graph @test(%p: int32[]) -> (%t) {
              %t = constant bool[] [true]
            }
            subgraph @step = graph @step(%p: int32[]) -> (%p) {
            }
          }
          subgraph @test = graph @test(%p: int32[]) -> (%t) {
            %t = constant bool[] [true]
          }
          subgraph @step = graph @step(%p: int32[]) -> (%p) {
          }
        }
        """,
        "it runs a loop, which might not end",
    )


BIG = """
    graph @g() -> (%p) {
      %a = constant float32[1,4,4,1] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
      %p: float32[1,2,2,1] = max_pool2d(%a) {size=(3, 3), strides=(1, 1), padding=((0, 0), (0, 0))}
    }
    """


def test_operations_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 elements to read, 4 to write, 9 to compare for each of these."""
    monkeypatch.setattr(module, "FOLD_OPERATIONS", 55)
    check_declined(fold_constant, BIG, "it needs 56 operations on 80 bytes; the limits are 55 operations")
    monkeypatch.setattr(module, "FOLD_OPERATIONS", 56)
    assert not fold_constant(parse(BIG)).nodes


def test_bytes_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLD_BYTES", 79)
    check_declined(fold_constant, BIG, "the limits are 33554432 operations and 79 bytes")


def test_all_folds_together_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three operations a sum: enough for two."""
    monkeypatch.setattr(
        _Budget,
        "__init__",
        lambda self, growth: self.__dict__.update(operations=8, bytes=1000, growth=growth),
    )
    decisions: list[Decision] = []
    graph = parse("""
        graph @g() -> (%d) {
          %a = constant int32[1] [3]
          %b: int32[1] = add(%a, %a)
          %c: int32[1] = add(%b, %a)
          %d: int32[1] = add(%c, %a)
        }
        """)
    result = fold_constant(graph, PassContext(sink=decisions.append))
    assert [node.output.name for node in result.nodes] == ["d"]
    assert "other folds have used up the budget" in decisions[-1].reason


def test_results_do_not_grow_without_end() -> None:
    """Each sum has four times the elements of its operands, which alone may be."""
    lines = ["%a0 = constant int8[4,1] [1, 2, 3, 4]"]
    for index in range(10):
        rows = 4 ** (index + 1)
        lines += [
            f"%r{index}: int8[1,{rows}] = reshape(%a{index}) {{shape=(1, {rows})}}",
            f"%c{index} = constant int8[4,1] [0, 1, 2, 3]",
            f"%s{index}: int8[4,{rows}] = maximum(%r{index}, %c{index})",
            f"%a{index + 1}: int8[{4 * rows},1] = reshape(%s{index}) {{shape=({4 * rows}, 1)}}",
        ]
    text = "graph @g() -> (%a10) {" + "\n".join(lines) + "}"
    decisions: list[Decision] = []
    result = fold_constant(parse(text), PassContext(sink=decisions.append))
    assert max(array.size for array in result.constants.values()) == 4**9
    assert any("the remaining limit is" in decision.reason for decision in decisions)


def test_a_pool_that_would_take_minutes_is_not_folded() -> None:
    check_declined(
        fold_constant,
        f"""
        graph @g() -> (%p) {{
          %a = constant int8[1,200,200,1] [{", ".join(["1"] * 40000)}]
          %p: int8[1,101,101,1] = max_pool2d(%a) {{size=(100, 100), strides=(1, 1), padding=((0, 0), (0, 0))}}
        }}
        """,
        "it needs 102060201 operations",
    )
