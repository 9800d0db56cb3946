from __future__ import annotations

from textwrap import dedent

import pytest
from msgspec.structs import replace

from microfold.errors import InputError
from microfold.ir.graph import verify
from microfold.ir.match import Match
from microfold.ir.pattern import is_op, optional, sequence, wildcard
from microfold.ir.pattern_table import PatternEntry
from microfold.ir.text import parse, to_text
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.passes.context import Decision, PassContext
from microfold.transform.external.merge_composite import MergeComposite, Row
from microfold.transform.subgraphs.inline import inline
from tests.evaluation import assert_same_meaning
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


def test_matches_do_not_overlap() -> None:
    rows = [PatternEntry("pair", sequence(is_op(Clip), is_op(Add))), CHAIN]
    graph = MergeComposite(rows)(parse(dedent(BEFORE)))
    assert [getattr(node.op, "composite", node.op.name) for node in graph.nodes] == [
        "tanh",
        "pair",
        "logistic",
        "gate",
    ]


def test_the_order_of_rows_is_priority_over_the_whole_graph() -> None:
    """A row that ends earlier in the graph goes before a later one; tuples are rows, too."""
    both, first, second = (
        sequence(is_op("tanh"), is_op("abs"), is_op(Clip)),
        sequence(is_op("tanh"), is_op("abs")),
        sequence(is_op("abs"), is_op(Clip)),
    )
    text = """
        graph @g(%x: float32[4]) -> (%c) {
          %a: float32[4] = tanh(%x)
          %b: float32[4] = abs(%a)
          %c: float32[4] = clip(%b) {minimum=0.0, maximum=1.0}
        }
        """

    def merged(*rows: Row) -> list[str]:
        graph = MergeComposite(rows)(parse(dedent(text)))
        return [getattr(node.op, "composite", node.op.name) for node in graph.nodes]

    assert merged(("first", first), ("second", second), ("both", both)) == ["first", "clip"]
    assert merged(("second", second), ("both", both), ("first", first)) == ["tanh", "second"]
    assert merged(("no", both, lambda _: False), ("both", both, lambda _: True)) == ["both"]


@pytest.mark.parametrize("row", [42, ("a",), ("a", 1), (is_op("abs"), "a"), ("a", is_op("abs"), 1)])
def test_rows_that_are_none(row: object) -> None:
    with pytest.raises(InputError, match="row 0 is"):
        MergeComposite([row])(parse(dedent(BEFORE)))  # type: ignore[list-item]
    with pytest.raises(InputError, match="two are 'gate'"):
        MergeComposite([CHAIN, CHAIN])(parse(dedent(BEFORE)))


def test_several_results() -> None:
    gate = '{body="gate", composite="gate", compiler="", stateful=false}'
    check_rewrite(
        MergeComposite([replace(CHAIN, several_results=True)]),
        """
        graph @g(%x: float32[4]) -> (%y, %z, %a) {
          %a: float32[4] = tanh(%x)
          %z: float32[4] = logistic(%a)
          %y: float32[4] = add(%a, %x)
        }
        """,
        """
        graph @g(%x: float32[4]) -> (%y, %z, %a) {
          CALL
          %z: float32[4] = logistic(%a)
          subgraph @gate = graph @gate(%x: float32[4]) -> (%a, %y) {
            %a: float32[4] = tanh(%x)
            %y: float32[4] = add(%a, %x)
          }
        }
        """.replace("CALL", f"%a: float32[4], %y: float32[4] = call(%x) {gate}"),
    )


def test_a_node_outside_may_not_run_between_those_of_a_composite() -> None:
    entry = PatternEntry("gate", is_op(Add).in_any_order(is_op("tanh"), wildcard()), several_results=True)
    check_declined(
        MergeComposite([entry]),
        """
        graph @g(%x: float32[4]) -> (%y) {
          %a: float32[4] = tanh(%x)
          %b: float32[4] = logistic(%a)
          %y: float32[4] = add(%a, %b)
        }
        """,
        "gate: %b must run between its nodes",
    )


def test_composites_may_not_wait_for_each_other() -> None:
    """Each of the two alone is convex, but the end of one needs the beginning of the other, both ways."""
    rows = [
        PatternEntry("low", is_op("minimum")(is_op("abs"), wildcard()), several_results=True),
        PatternEntry("high", is_op("maximum")(is_op("tanh"), wildcard()), several_results=True),
    ]
    text = """
        graph @g(%x: float32[4]) -> (%b, %d) {
          %a: float32[4] = tanh(%x)
          %c: float32[4] = abs(%x)
          %p: float32[4] = add(%c, %x)
          %b: float32[4] = maximum(%a, %p)
          %q: float32[4] = add(%a, %x)
          %d: float32[4] = minimum(%c, %q)
        }
        """
    graph = parse(dedent(text))
    decisions: list[Decision] = []
    result = MergeComposite(rows)(graph, PassContext(sink=decisions.append))
    verify(result)
    assert_same_meaning(graph, result)
    assert [d.reason for d in decisions] == [
        "high: %p must run between its nodes",
        "low: with 1 node before it",
    ]


def test_constants_as_operands() -> None:
    graph = parse(dedent(BEFORE))
    bare = MergeComposite([CHAIN], bind_constants=False)(graph)
    assert [value.name for value in bare.nodes[0].operands] == ["x", "k"]
    assert not bare.subgraphs["gate"].constants
    verify(bare)
    assert_same_meaning(graph, bare)
    assert to_text(inline(bare)) == to_text(graph)


def test_entry_functions() -> None:
    text = """
        graph @g(%x: float32[4]) -> (%y) {
          %p: float32[4] = call(%x) {body="f", composite="", compiler="", stateful=false}
          %a: float32[4] = tanh(%p)
          %y: float32[4] = add(%a, %x)
          subgraph @f = graph @f(%x: float32[4]) -> (%y) {
            %a: float32[4] = tanh(%x)
            %y: float32[4] = add(%a, %x)
          }
        }
        """
    graph = parse(dedent(text))
    inner = MergeComposite([CHAIN], entry_functions=("f",))(graph)
    assert [node.op.name for node in inner.nodes] == ["call", "tanh", "add"]
    assert list(inner.subgraphs["f"].subgraphs) == ["gate"]
    whole = MergeComposite([CHAIN], entry_functions=("g",))(graph)
    assert [*whole.subgraphs, *whole.subgraphs["f"].subgraphs] == ["f", "gate", "gate"]
    with pytest.raises(InputError, match="there is no function h; the model has g, f"):
        MergeComposite([CHAIN], entry_functions=("h",))(graph)


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
