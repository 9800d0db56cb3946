from __future__ import annotations

from textwrap import dedent

import pytest

from microfold.ir.match import Match
from microfold.ir.pattern import is_op, optional, sequence, wildcard
from microfold.ir.pattern_table import PatternEntry
from microfold.ir.text import parse, to_text
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.transform.external.merge_composite import MergeComposite
from microfold.transform.subgraphs.inline import inline
from tests.transform.check import check_declined, check_rewrite

CHAIN = PatternEntry("gate", sequence(is_op("tanh"), optional(is_op(Clip)), is_op(Add)))

BEFORE = """
graph @g(%x: float32[4]) -> (%y, %q) {
  %a: float32[4] = tanh(%x)
  %b: float32[4] = clip(%a) {minimum=0.0, maximum=1.0}
  %k = constant float32[4] [1.0, 2.0, 3.0, 4.0]
  %c: float32[4] = add(%b, %k)
  %y: float32[4] = logistic(%c)
  %p: float32[4] = tanh(%y)
  %q: float32[4] = add(%x, %p)
}
"""


def test_matches_become_calls() -> None:
    decisions = check_rewrite(
        MergeComposite([CHAIN]),
        BEFORE,
        """
        graph @g(%x: float32[4]) -> (%y, %q) {
          %c: float32[4] = call(%x) {body="gate", composite="gate", compiler="", stateful=false}
          %y: float32[4] = logistic(%c)
          %q: float32[4] = call(%y, %x) {body="gate_1", composite="gate", compiler="", stateful=false}
          subgraph @gate = graph @gate(%x: float32[4]) -> (%c) {
            %a: float32[4] = tanh(%x)
            %b: float32[4] = clip(%a) {minimum=0.0, maximum=1.0}
            %k = constant float32[4] [1.0, 2.0, 3.0, 4.0]
            %c: float32[4] = add(%b, %k)
          }
          subgraph @gate_1 = graph @gate_1(%y: float32[4], %x: float32[4]) -> (%q) {
            %p: float32[4] = tanh(%y)
            %q: float32[4] = add(%x, %p)
          }
        }
        """,
    )
    assert [str(decision) for decision in decisions] == [
        "merge_composite: add %q: gate: with 1 node before it",
        "merge_composite: add %c: gate: with 2 nodes before it",
    ]


def test_inline_takes_them_apart_again() -> None:
    graph = parse(dedent(BEFORE))
    assert to_text(inline(MergeComposite([CHAIN])(graph))) == to_text(graph)


def test_the_first_row_counts_and_matches_do_not_overlap() -> None:
    rows = [PatternEntry("pair", sequence(is_op(Clip), is_op(Add))), CHAIN]
    graph = MergeComposite(rows)(parse(dedent(BEFORE)))
    assert [getattr(node.op, "composite", node.op.name) for node in graph.nodes] == [
        "tanh",
        "pair",
        "logistic",
        "gate",
    ]


@pytest.mark.parametrize(
    "reader", ["%z: float32[4] = logistic(%a)", "state %z: float32[4] initial [0, 0, 0, 0] next %a", ""]
)
def test_what_is_read_outside(reader: str) -> None:
    check_declined(
        MergeComposite([CHAIN]),
        f"""
        graph @g(%x: float32[4]) -> (%y, {"%z" if reader else "%a"}) {{
          %a: float32[4] = tanh(%x)
          %y: float32[4] = add(%a, %x)
          {reader}
        }}
        """,
        "gate: %a is read outside the pattern",
    )


def test_checks_and_patterns_that_do_not_fit() -> None:
    def small(found: Match) -> str | None:
        size = found["x"].type.size
        return None if size < 4 else f"it takes less than 4 elements; %{found['x'].name} has {size}"

    text = """
        graph @g(%x: float32[4]) -> (%y) {
          %y: float32[4] = clip(%x) {minimum=0.0, maximum=1.0}
        }
        """
    entry = PatternEntry("small", is_op(Clip)(wildcard("x")), small)
    check_declined(MergeComposite([entry]), text, "small: it takes less than 4 elements; %x has 4")
    entry = PatternEntry("two", is_op(Clip)(is_op(Clip)))
    check_declined(MergeComposite([entry]), text, "two: operand x of clip %y must be computed by clip")
    check_declined(MergeComposite(), text)
