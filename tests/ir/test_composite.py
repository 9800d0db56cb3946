from __future__ import annotations

from textwrap import dedent

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.ir.composite import find_composites
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.pattern import is_op, sequence
from microfold.ir.pattern_table import PatternEntry
from microfold.ir.text import parse

PAIR = PatternEntry("pair", sequence(is_op("tanh"), is_op("logistic")))
SINGLE = PatternEntry("single", is_op("tanh", "logistic"))
GRAPH = parse(
    dedent(
        """
        graph @g(%x: float32[4]) -> (%d) {
          %a: float32[4] = tanh(%x)
          %b: float32[4] = logistic(%a)
          %c: float32[4] = tanh(%b)
          %d: float32[4] = logistic(%c)
        }
        """
    )
)


def names(graph: Graph, **options: object) -> list[tuple[str, str, str]]:
    found = find_composites(graph, [("first", [PAIR]), ("second", [SINGLE])], **options)  # type: ignore[arg-type]
    return [(c.owner, c.entry.name, " ".join(n.output.name for n in c.nodes)) for c in found]


def test_owners_in_order() -> None:
    assert names(GRAPH) == [("first", "pair", "c d"), ("first", "pair", "a b")]


def test_what_is_taken_is_left_alone() -> None:
    declined: list[str] = []

    def note(node: Node, reason: str) -> None:
        declined.append(f"{node.output.name}: {reason}")

    alone = [("second", "single", "d"), ("first", "pair", "a b")]
    assert names(GRAPH, taken=[GRAPH.nodes[2]], declined=note) == alone
    assert declined == []
    find_composites(GRAPH, [("first", [PAIR])], taken=[GRAPH.nodes[2]], declined=note)
    assert declined == ["d: first pair: %c belongs to another unit"]


def test_nodes_with_effects_stay() -> None:
    graph = parse(
        dedent(
            """
            graph @g(%x: float32[1]) -> (%y) {
              %p: float32[1] = call(%x) {body="f", stateful=true}
              %y: float32[1] = tanh(%p)
              subgraph @f = graph @f(%v: float32[1]) -> (%n) {
                state %s: float32[1] initial [0.0] next %n
                %n: float32[1] = add(%s, %v)
              }
            }
            """
        )
    )
    entry = PatternEntry("late", sequence(is_op("call"), is_op("tanh")))
    declined: list[str] = []
    found = find_composites(graph, [("", [entry])], declined=lambda _, reason: declined.append(reason))
    assert found == []
    assert declined == ["late: call has an effect"]
