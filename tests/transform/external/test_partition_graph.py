"""Regions become functions."""

from __future__ import annotations

from microfold.ir.graph import verify
from microfold.ir.text import parse, to_text
from microfold.ops.control.call import Call
from microfold.transform.external.annotate_target import annotate_target
from microfold.transform.external.merge_compiler_regions import merge_compiler_regions
from microfold.transform.external.partition_graph import partition_graph
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite
from tests.transform.external.test_merge_compiler_regions import CHAIN, DETOUR
from tests.transform.externals import CLIP, Table, context


def test_a_region() -> None:
    check_rewrite(
        partition_graph,
        """
        graph @g(%x: int8[4] q(0.5, 0)) -> (%y) {
          %x#1: int8[4] q(0.5, 0) = compiler_begin(%x) {compiler="an-x"}
          %c = constant int8[4] q(0.5, 0) [1, -2, 3, 4]
          %a: int8[4] q(0.5, 0) = add(%x#1, %c)
          %a#1: int8[4] q(0.5, 0) = compiler_end(%a) {compiler="an-x", composite="sum"}
          %y: int8[4] q(0.5, 0) = abs(%a#1)
        }
        """,
        """
        graph @g(%x: int8[4] q(0.5, 0)) -> (%y) {
          %a: int8[4] q(0.5, 0) = call(%x) {body="an_x_0", composite="sum", compiler="an-x", stateful=false}
          %y: int8[4] q(0.5, 0) = abs(%a)
          subgraph @an_x_0 = graph @an_x_0(%x: int8[4] q(0.5, 0)) -> (%a) {
            %c = constant int8[4] q(0.5, 0) [1, -2, 3, 4]
            %a: int8[4] q(0.5, 0) = add(%x, %c)
          }
        }
        """,
    )


def test_no_region() -> None:
    check_declined(
        partition_graph,
        """
        graph @g(%x: int8[4] q(0.5, 0)) -> (%y) {
          %y: int8[4] q(0.5, 0) = abs(%x)
        }
        """,
    )


def test_neighbours_get_a_function_each() -> None:
    graph = partition_graph(parse(CHAIN))
    verify(graph)
    assert [node.op.body for node in graph.nodes if isinstance(node.op, Call)] == ["npu_0", "npu_1"]
    assert_same_meaning(parse(CHAIN), graph)


def test_a_merged_region_with_two_results() -> None:
    table = context(Table("npu", (CLIP,), merges=True))
    graph = parse(DETOUR)
    result = partition_graph(merge_compiler_regions(annotate_target(graph, table), table))
    verify(result)
    assert_same_meaning(graph, result)
    (call,) = (node for node in result.nodes if isinstance(node.op, Call))
    assert len(call.outputs) == 2
    assert isinstance(call.op, Call)
    assert call.op.composite == ""
    assert "compiler_" not in to_text(result)
