from __future__ import annotations

from microfold.ir.graph import verify
from microfold.ir.text import parse
from microfold.transform.subgraphs.lower_branches import lower_branches
from tests import loops
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined


def test_constants_go_into_the_branches() -> None:
    graph = loops.branch()
    result = lower_branches(graph)
    verify(result)
    assert_same_meaning(graph, result)
    (node,) = result.nodes
    assert len(node.inputs) == 2
    assert lower_branches(result) is result


def test_branches_of_two_conditions() -> None:
    text = """
    graph @g(%c: bool[], %d: bool[], %x: int32[2]) -> (%y, %z) {
      %y: int32[2] = if(%c, %x) {then="f", otherwise="h"}
      %z: int32[2] = if(%d, %y) {then="f", otherwise="h"}
      subgraph @f = graph @f(%p: int32[2]) -> (%q) {
        %q: int32[2] = add(%p, %p)
      }
      subgraph @h = graph @h(%p: int32[2]) -> (%p) {
      }
    }
    """
    graph = parse(text)
    result = lower_branches(graph)
    verify(result)
    assert_same_meaning(graph, result)
    assert len(result.subgraphs) == 4
    alone = text.replace("%z)", "%y)").replace(
        '      %z: int32[2] = if(%d, %y) {then="f", otherwise="h"}\n', ""
    )
    check_declined(lower_branches, alone)


def test_operands_that_are_handed_on() -> None:
    """One parameter in both branches is the operand; another one in each is a result."""
    text = """
    graph @g(%c: bool[], %x: int32[2], %y: int32[2]) -> (%s, %p, %q) {
      %s: int32[2], %p: int32[2], %q: int32[2] = if(%c, %x, %y) {then="f", otherwise="h"}
      subgraph @f = graph @f(%a: int32[2], %b: int32[2]) -> (%t, %a, %a) {
        %t: int32[2] = add(%a, %b)
      }
      subgraph @h = graph @h(%a: int32[2], %b: int32[2]) -> (%t, %a, %b) {
        %t: int32[2] = sub(%a, %b)
      }
    }
    """
    graph = parse(text)
    result = lower_branches(graph)
    verify(result)
    assert_same_meaning(graph, result)
    (node,) = result.nodes
    assert len(node.outputs) == 2
    assert result.outputs[1] is result.inputs[1]
    bare = parse(text.replace("(%t, %a, %a)", "(%b, %a, %a)").replace("(%t, %a, %b)", "(%b, %a, %a)"))
    assert not lower_branches(bare).nodes
    assert_same_meaning(bare, lower_branches(bare))
