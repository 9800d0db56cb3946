from __future__ import annotations

from itertools import product

import pytest

from microfold.ir.graph import verify
from microfold.ir.text import parse
from microfold.passes.context import Decision, PassContext
from microfold.transform.simplify.topological_sort import TopologicalSort
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

BRANCHES = """
graph @g(%x: float32[4], %z: float32[4]) -> (%y) {
  %a: float32[4] = tanh(%x)
  %b: float32[4] = tanh(%z)
  %c: float32[4] = logistic(%a)
  %d: float32[4] = logistic(%b)
  %k = constant float32[4] [1.0, 2.0, 3.0, 4.0]
  %e: float32[4] = add(%z, %k)
  %f: float32[4] = add(%c, %d)
  %y: float32[4] = add(%f, %e)
}
"""


def test_depth_first_from_the_inputs() -> None:
    decisions = check_rewrite(
        TopologicalSort("depth", "inputs"),
        BRANCHES,
        """
        graph @g(%x: float32[4], %z: float32[4]) -> (%y) {
          %a: float32[4] = tanh(%x)
          %c: float32[4] = logistic(%a)
          %b: float32[4] = tanh(%z)
          %d: float32[4] = logistic(%b)
          %f: float32[4] = add(%c, %d)
          %k = constant float32[4] [1.0, 2.0, 3.0, 4.0]
          %e: float32[4] = add(%z, %k)
          %y: float32[4] = add(%f, %e)
        }
        """,
    )
    assert str(decisions[0]) == "topological_sort: logistic %c: it takes the place of tanh"


@pytest.mark.parametrize(
    ("order", "direction", "names"),
    [
        ("breadth", "inputs", "a b e c d f y"),
        ("depth", "outputs", "a c b d f e y"),
        ("breadth", "outputs", "a b c d e f y"),
    ],
)
def test_other_orders(order: str, direction: str, names: str) -> None:
    graph = parse(BRANCHES)
    step = TopologicalSort(order=order, direction=direction)  # type: ignore[arg-type]
    result = step(graph)
    verify(result)
    assert " ".join(node.output.name for node in result.nodes) == names
    assert_same_meaning(graph, result)
    assert step(result) is result


FAN = """
graph @g(%x: float32[4]) -> (%d, %e) {
  %a: float32[4] = tanh(%x)
  %b: float32[4] = logistic(%a)
  %c: float32[4] = tanh(%a)
  %d: float32[4] = tanh(%b)
  %e: float32[4] = tanh(%c)
}
"""


def test_branches_keep_their_order() -> None:
    graph = parse(FAN)
    for direction in ("inputs", "outputs"):
        result = TopologicalSort("depth", direction)(graph)  # type: ignore[arg-type]
        assert "".join(node.output.name for node in result.nodes) == "abdce"


@pytest.mark.parametrize("order", ["depth", "breadth"])
@pytest.mark.parametrize("direction", ["inputs", "outputs"])
def test_a_chain_stays(order: str, direction: str) -> None:
    check_declined(
        TopologicalSort(order=order, direction=direction),  # type: ignore[arg-type]
        """
        graph @g(%x: float32[4]) -> (%y) {
          %a: float32[4] = tanh(%x)
          %y: float32[4] = logistic(%a)
        }
        """,
        f"are {order} first already",
    )


def test_effects_keep_their_order() -> None:
    # Each call adds to the state of @f: the second gives another result than the first.
    graph = parse(
        """
        graph @g(%x: float32[1], %z: float32[1]) -> (%q, %r) {
          %h: float32[1] = tanh(%z)
          %p: float32[1] = call(%h) {body="f", stateful=true}
          %q: float32[1] = tanh(%p)
          %r: float32[1] = call(%x) {body="f", stateful=true}
          subgraph @f = graph @f(%v: float32[1]) -> (%n) {
            state %s: float32[1] initial [0.0] next %n
            %n: float32[1] = add(%s, %v)
          }
        }
        """
    )
    for order, direction in product(["depth", "breadth"], ["inputs", "outputs"]):
        result = TopologicalSort(order=order, direction=direction)(graph, PassContext())  # type: ignore[arg-type]
        calls = [node.output.name for node in result.nodes if node.op.name == "call"]
        assert calls == ["p", "r"]
        assert_same_meaning(graph, result)


WIDE = """
graph @g(%x: float32[1]) -> (%y) {
  %a: float32[64] = broadcast_to(%x) {shape=(64,)}
  %b: float32[64] = broadcast_to(%x) {shape=(64,)}
  %c: float32[1] = sum(%a) {axes=(0,), keep_dims=true}
  %d: float32[1] = sum(%b) {axes=(0,), keep_dims=true}
  %y: float32[1] = add(%c, %d)
}
"""


def test_by_memory() -> None:
    """One wide value at a time."""
    graph = parse(WIDE)
    result = TopologicalSort("memory")(graph)
    verify(result)
    assert [node.outputs[0].name for node in result.nodes] == ["a", "c", "b", "d", "y"]
    assert_same_meaning(graph, result)
    assert TopologicalSort("memory")(result) is result


def test_no_order_with_less_memory() -> None:
    decisions: list[Decision] = []
    graph = parse(BRANCHES)
    assert TopologicalSort("memory")(graph, PassContext(sink=decisions.append)) is graph
    assert "bytes are alive at once" in decisions[0].reason
