"""Matches of external code generators get boundaries."""

from __future__ import annotations

from msgspec.structs import replace

from microfold.analysis.compiler_regions import compiler_regions
from microfold.ir.graph import verify
from microfold.ir.text import parse, to_text
from microfold.passes.context import Decision, PassContext
from microfold.transform.external.annotate_target import annotate_target
from microfold.transform.external.partition_graph import partition_graph
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite
from tests.transform.externals import CLIP, POOL, Table, context

NPU = Table("npu", (POOL, CLIP))


def test_one_match() -> None:
    check_rewrite(
        annotate_target,
        """
        graph @g(%x: int8[4] q(0.5, 0)) -> (%y) {
          %a: int8[4] q(0.5, 0) = clip(%x) {minimum=0.0, maximum=6.0}
          %y: int8[4] q(0.5, 0) = abs(%a)
        }
        """,
        """
        graph @g(%x: int8[4] q(0.5, 0)) -> (%y) {
          %x#1: int8[4] q(0.5, 0) = compiler_begin(%x) {compiler="npu"}
          %a: int8[4] q(0.5, 0) = clip(%x#1) {minimum=0.0, maximum=6.0}
          %a#1: int8[4] q(0.5, 0) = compiler_end(%a) {compiler="npu", composite="clip"}
          %y: int8[4] q(0.5, 0) = abs(%a#1)
        }
        """,
        context(NPU),
    )


POOL_AND_CLIP = """
graph @g(%x: int8[1,4,4,2] q(0.5, 0)) -> (%y) {
  %a: int8[1,2,2,2] q(0.5, 0) = max_pool2d(%x) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
  %y: int8[1,2,2,2] q(0.5, 0) = clip(%a) {minimum=0.0, maximum=6.0}
}
"""
ANNOTATED = """
graph @g(%x: int8[1,4,4,2] q(0.5, 0)) -> (%y#1) {
  %x#1: int8[1,4,4,2] q(0.5, 0) = compiler_begin(%x) {compiler="npu"}
  %a: int8[1,2,2,2] q(0.5, 0) = max_pool2d(%x#1) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
  %y: int8[1,2,2,2] q(0.5, 0) = clip(%a) {minimum=0.0, maximum=6.0}
  %y#1: int8[1,2,2,2] q(0.5, 0) = compiler_end(%y) {compiler="npu", composite="pool"}
}
"""


def test_the_longer_match_wins() -> None:
    decisions = check_rewrite(
        annotate_target,
        POOL_AND_CLIP,
        ANNOTATED,
        context(NPU),
    )
    assert decisions[0].reason == "npu computes it: pool"


def test_the_first_code_generator_wins() -> None:
    graph = annotate_target(parse(POOL_AND_CLIP), context(Table("first", (CLIP,)), NPU))
    text = to_text(graph)
    assert 'compiler_end(%y) {compiler="first", composite="clip"}' in text
    assert 'compiler_end(%a) {compiler="npu", composite="pool"}' in text


def test_annotated_again_it_stays() -> None:
    graph = annotate_target(parse(POOL_AND_CLIP), context(NPU))
    assert annotate_target(graph, context(NPU)) is graph


def test_a_check_declines_with_its_reason() -> None:
    text = POOL_AND_CLIP.replace(",2]", ",8]")
    check_declined(
        annotate_target, text, "it takes up to 4 channels; there are 8", context(Table("npu", (POOL,)))
    )


def test_what_is_read_on_the_way_ends_the_region() -> None:
    text = POOL_AND_CLIP.replace("-> (%y)", "-> (%y, %a)")
    decisions: list[Decision] = []
    graph = annotate_target(
        parse(text), PassContext(externals=[Table("npu", (POOL,))], sink=decisions.append)
    )
    assert [region.nodes[-1].op.name for region in compiler_regions(graph)] == ["max_pool2d"]
    assert "%a is read outside the pattern" in decisions[0].reason


def test_without_code_generators_nothing_happens() -> None:
    check_declined(annotate_target, POOL_AND_CLIP)


def test_a_match_with_several_results_has_several_ends() -> None:
    graph = parse(POOL_AND_CLIP.replace("-> (%y)", "-> (%y, %a)"))
    table = Table("npu", (replace(POOL, several_results=True),))
    annotated = annotate_target(graph, context(table))
    verify(annotated)
    (region,) = compiler_regions(annotated)
    assert [node.op.name for node in region.nodes] == ["max_pool2d", "clip"]
    assert [end.operands[0].name for end in region.ends] == ["a", "y"]
    assert_same_meaning(graph, partition_graph(annotated))
