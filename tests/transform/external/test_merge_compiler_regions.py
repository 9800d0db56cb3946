"""Neighbouring regions become one where their code generator wants it."""

from __future__ import annotations

from microfold.analysis.compiler_regions import compiler_regions
from microfold.ir.graph import verify
from microfold.ir.text import parse, to_text
from microfold.passes.context import Decision, PassContext
from microfold.transform.external.annotate_target import annotate_target
from microfold.transform.external.merge_compiler_regions import merge_compiler_regions
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite
from tests.transform.externals import CLIP, Table, context

NPU = Table("npu", (CLIP,), merges=True)
CHAIN = """
graph @g(%x: int8[4] q(0.5, 0)) -> (%y#1) {
  %x#1: int8[4] q(0.5, 0) = compiler_begin(%x) {compiler="npu"}
  %a: int8[4] q(0.5, 0) = clip(%x#1) {minimum=0.0, maximum=6.0}
  %a#1: int8[4] q(0.5, 0) = compiler_end(%a) {compiler="npu", composite="clip"}
  %a#2: int8[4] q(0.5, 0) = compiler_begin(%a#1) {compiler="npu"}
  %y: int8[4] q(0.5, 0) = clip(%a#2) {minimum=1.0, maximum=3.0}
  %y#1: int8[4] q(0.5, 0) = compiler_end(%y) {compiler="npu", composite="clip"}
}
"""


def test_a_chain() -> None:
    check_rewrite(
        merge_compiler_regions,
        CHAIN,
        """
        graph @g(%x: int8[4] q(0.5, 0)) -> (%y#1) {
          %x#1: int8[4] q(0.5, 0) = compiler_begin(%x) {compiler="npu"}
          %a: int8[4] q(0.5, 0) = clip(%x#1) {minimum=0.0, maximum=6.0}
          %y: int8[4] q(0.5, 0) = clip(%a) {minimum=1.0, maximum=3.0}
          %y#1: int8[4] q(0.5, 0) = compiler_end(%y) {compiler="npu", composite=""}
        }
        """,
        context(NPU),
    )


def test_not_unless_the_code_generator_wants_it() -> None:
    check_declined(merge_compiler_regions, CHAIN, context=context(Table("npu", (CLIP,))))


def test_two_code_generators_stay_apart() -> None:
    text = CHAIN.replace('compiler_begin(%x) {compiler="npu"}', 'compiler_begin(%x) {compiler="dsp"}')
    text = text.replace('compiler_end(%a) {compiler="npu"', 'compiler_end(%a) {compiler="dsp"')
    check_declined(merge_compiler_regions, text, context=context(NPU, Table("dsp", (CLIP,), merges=True)))


def merged(text: str) -> tuple[list[int], list[Decision]]:
    """How many nodes each region has that annotation and merging give."""
    decisions: list[Decision] = []
    graph = parse(text)
    annotated = annotate_target(graph, context(NPU))
    result = merge_compiler_regions(annotated, PassContext(externals=[NPU], sink=decisions.append))
    verify(result)
    assert_same_meaning(graph, result)
    assert to_text(merge_compiler_regions(result, context(NPU))) == to_text(result)
    return sorted(len(region.nodes) for region in compiler_regions(result)), decisions


DETOUR = """
graph @g(%x: int8[4] q(0.5, 0)) -> (%y) {
  %a: int8[4] q(0.5, 0) = clip(%x) {minimum=0.0, maximum=6.0}
  %b: int8[4] q(0.5, 0) = abs(%a)
  %c: int8[4] q(0.5, 0) = clip(%a) {minimum=1.0, maximum=6.0}
  %y: int8[4] q(0.5, 0) = add(%b, %c)
}
"""


def test_a_fork_is_one_region_with_two_results() -> None:
    # abs only reads the region, so that it can run behind it.
    sizes, _ = merged(DETOUR)
    assert sizes == [2]


def test_a_path_outside_keeps_regions_apart() -> None:
    text = """
    graph @g(%x: int8[4] q(0.5, 0)) -> (%y, %c) {
      %a: int8[4] q(0.5, 0) = clip(%x) {minimum=0.0, maximum=6.0}
      %b: int8[4] q(0.5, 0) = abs(%a)
      %s: int8[4] q(0.5, 0) = add(%a, %b)
      %c: int8[4] q(0.5, 0) = clip(%s) {minimum=1.0, maximum=6.0}
      %y: int8[4] q(0.5, 0) = clip(%c) {minimum=2.0, maximum=5.0}
    }
    """
    assert merged(text)[0] == [1, 2]


BACK = """
graph @g(%x: int8[4] q(0.5, 0)) -> (%y#1) {
  %x#1: int8[4] q(0.5, 0) = compiler_begin(%x) {compiler="npu"}
  %a: int8[4] q(0.5, 0) = clip(%x#1) {minimum=0.0, maximum=6.0}
  %a#1: int8[4] q(0.5, 0) = compiler_end(%a) {compiler="npu", composite="one"}
  %b: int8[4] q(0.5, 0) = abs(%a#1)
  %a#2: int8[4] q(0.5, 0) = compiler_begin(%a#1) {compiler="npu"}
  %b#1: int8[4] q(0.5, 0) = compiler_begin(%b) {compiler="npu"}
  %y: int8[4] q(0.5, 0) = add(%a#2, %b#1)
  %y#1: int8[4] q(0.5, 0) = compiler_end(%y) {compiler="npu", composite="two"}
}
"""


def test_regions_that_would_wait_for_themselves_stay_apart() -> None:
    check_declined(merge_compiler_regions, BACK, "leads back through nodes outside", context(NPU))
