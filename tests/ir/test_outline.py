"""Regions become functions, and inlining them again gives the same graph."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microfold.errors import GraphError
from microfold.ir.graph import Graph, verify
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.ir.outline import OutlinedRegion, outline
from microfold.ir.text import parse, to_text
from microfold.ir.types import TensorType
from microfold.ops.control.call import Call
from microfold.transform.subgraphs.inline import inline
from tests.evaluation import assert_same_meaning
from tests.random_graphs import graphs

DIAMOND = """\
graph @g(%x: float32[2]) -> (%d, %a) {
  %a: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
  %b: float32[2] = clip(%a) {minimum=-1.0, maximum=1.0}
  %w = constant float32[2] [1.0, 2.0]
  %c: float32[2] = add(%a, %w)
  %d: float32[2] = add(%b, %c)
}
"""


def call(name: str, results: tuple[TensorType, ...]) -> Op:
    return Call(name, results)


def region(graph: Graph, *indices: int) -> OutlinedRegion:
    return OutlinedRegion("f", tuple(graph.nodes[i] for i in indices), call)


def test_text() -> None:
    graph = parse(DIAMOND)
    result = outline(graph, [region(graph, 0, 2), region(graph, 3)])
    verify(result)
    assert (
        to_text(result)
        == """\
graph @g(%x: float32[2]) -> (%d, %a) {
  %a: float32[2], %c: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
  %b: float32[2] = clip(%a) {minimum=-1.0, maximum=1.0}
  %d: float32[2] = call(%b, %c) {body="f_1", composite="", compiler="", stateful=false}
  subgraph @f = graph @f(%x: float32[2]) -> (%a, %c) {
    %a: float32[2] = clip(%x) {minimum=0.0, maximum=6.0}
    %w = constant float32[2] [1.0, 2.0]
    %c: float32[2] = add(%a, %w)
  }
  subgraph @f_1 = graph @f_1(%b: float32[2], %c: float32[2]) -> (%d) {
    %d: float32[2] = add(%b, %c)
  }
}
"""
    )
    assert to_text(parse(to_text(result))) == to_text(result)
    assert_same_meaning(graph, result)


def test_what_is_refused() -> None:
    graph = parse(DIAMOND)
    with pytest.raises(GraphError, match="regions must be convex; one of f is not"):
        outline(graph, [region(graph, 0, 1, 3)])
    with pytest.raises(GraphError, match="regions must be disjoint"):
        outline(graph, [region(graph, 0, 1), region(graph, 1)])


@settings(deadline=None, max_examples=60)
@given(graph=graphs(), first=st.integers(0, 11), last=st.integers(0, 11))
def test_there_and_back(graph: Graph, first: int, last: int) -> None:
    nodes: tuple[Node, ...] = graph.nodes[min(first, last) : max(first, last) + 1]
    if not nodes:
        return
    result = outline(graph, [OutlinedRegion("f", nodes, call)])
    verify(result)
    assert len(result.nodes) == len(graph.nodes) - len(nodes) + 1
    assert_same_meaning(graph, result)
    back = inline(result)
    verify(back)
    assert to_text(back) == to_text(graph)
