from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from microfold.ir.graph import Graph, verify
from microfold.ir.text import parse
from microfold.ops.elementwise.activations.clip import Clip
from microfold.transform.subgraphs.inline import inline
from microfold.transform.subgraphs.lambda_lift import LambdaLift
from tests.evaluation import assert_same_meaning
from tests.random_graphs import graphs
from tests.transform.check import check_declined, check_rewrite

TEXT = """
graph @g(%x: float32[2]) -> (%d) {
  %a: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
  %b: float32[2] = add(%a, %x)
  %c: float32[2] = clip(%a) {minimum=-1.0, maximum=1.0}
  %k = constant float32[1] [2.0]
  %u: float32[1] = clip(%k) {minimum=-1.0, maximum=1.0}
  %e: float32[2] = add(%c, %u)
  %d: float32[2] = add(%b, %e) | clip() {minimum=-1.0, maximum=1.0}
}
"""


def test_connected_nodes_of_a_label() -> None:
    check_rewrite(
        LambdaLift(lambda node: "limit" if isinstance(node.op, Clip) else None),
        TEXT,
        """
        graph @g(%x: float32[2]) -> (%d) {
          %a: float32[2], %c: float32[2] = call(%x) {body="limit", composite="", compiler="", stateful=false}
          %b: float32[2] = add(%a, %x)
          %u: float32[1] = call() {body="limit_1", composite="", compiler="", stateful=false}
          %e: float32[2] = add(%c, %u)
          %d: float32[2] = add(%b, %e) | clip() {minimum=-1.0, maximum=1.0}
          subgraph @limit = graph @limit(%x: float32[2]) -> (%a, %c) {
            %a: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
            %c: float32[2] = clip(%a) {minimum=-1.0, maximum=1.0}
          }
          subgraph @limit_1 = graph @limit_1() -> (%u) {
            %k = constant float32[1] [2.0]
            %u: float32[1] = clip(%k) {minimum=-1.0, maximum=1.0}
          }
        }
        """,
    )


def test_a_path_through_another_node_splits_a_region() -> None:
    """%d reads the region of %a and %c at first hand, and at third hand through %u."""
    graph = parse(
        """
        graph @g(%x: float32[2]) -> (%d) {
          %a: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
          %b: float32[2] = add(%a, %x)
          %u: float32[2] = add(%b, %x)
          %c: float32[2] = clip(%a) {minimum=-1.0, maximum=1.0}
          %d: float32[2] = maximum(%c, %u)
        }
        """
    )
    lifted = LambdaLift(lambda node: None if node.op.name == "add" else "f")(graph)
    verify(lifted)
    assert [node.op.name for node in lifted.nodes] == ["call", "add", "add", "call"]
    assert_same_meaning(graph, lifted)


def test_what_is_not_labelled_stays() -> None:
    check_declined(LambdaLift(), TEXT)
    check_declined(LambdaLift(lambda _: None), TEXT)


@settings(deadline=None, max_examples=60)
@given(graph=graphs(), kinds=st.integers(1, 3), seed=st.integers(0, 99))
def test_regions_are_convex_whatever_the_labels(graph: Graph, kinds: int, seed: int) -> None:
    order = {node: index for index, node in enumerate(graph.nodes)}
    lifted = LambdaLift(lambda node: f"f{(order[node] * 7 + seed) // 3 % (kinds + 1)}" if seed % 5 else "f")(
        graph
    )
    verify(lifted)
    assert all(node.op.name == "call" for node in lifted.nodes)
    assert_same_meaning(graph, lifted)
    assert_same_meaning(graph, inline(lifted))
