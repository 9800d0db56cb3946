from __future__ import annotations

from microfold.transform.subgraphs.remove_unused_outputs import remove_unused_outputs
from tests.transform.check import check_declined, check_rewrite


def test_calls() -> None:
    """What the results of one caller leave unread in another's body goes as well."""
    check_rewrite(
        remove_unused_outputs,
        """
        graph @g(%x: float32[2]) -> (%b, %e) {
          %a: float32[2], %b: float32[2], %c: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
          %d: float32[2], %e: float32[2], %h: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
          subgraph @f = graph @f(%p: float32[2]) -> (%q, %r, %r) {
            %q: float32[2], %r: float32[2] = call(%p) {body="k", composite="", compiler="", stateful=false}
            subgraph @k = graph @k(%p: float32[2]) -> (%q, %r) {
              %q: float32[2] = clip(%p) {minimum=0.0, maximum=6.0}
              %r: float32[2] = clip(%p) {minimum=0.0, maximum=1.0}
            }
          }
        }
        """,  # noqa: E501
        """
        graph @g(%x: float32[2]) -> (%b, %e) {
          %b: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
          %e: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
          subgraph @f = graph @f(%p: float32[2]) -> (%r) {
            %r: float32[2] = call(%p) {body="k", composite="", compiler="", stateful=false}
            subgraph @k = graph @k(%p: float32[2]) -> (%r) {
              %r: float32[2] = clip(%p) {minimum=0.0, maximum=1.0}
            }
          }
        }
        """,
    )


def test_branches() -> None:
    check_rewrite(
        remove_unused_outputs,
        """
        graph @g(%x: float32[2], %c: bool[]) -> (%a) {
          %a: float32[2], %b: float32[2] = if(%c, %x) {then="f", otherwise="h"} | clip() {minimum=0.0, maximum=1.0}
          subgraph @f = graph @f(%p: float32[2]) -> (%p, %p) {
          }
          subgraph @h = graph @h(%p: float32[2]) -> (%p, %r) {
            %r: float32[2] = clip(%p) {minimum=0.0, maximum=1.0}
          }
        }
        """,  # noqa: E501
        """
        graph @g(%x: float32[2], %c: bool[]) -> (%a) {
          %a: float32[2] = if(%c, %x) {then="f", otherwise="h"} | clip() {minimum=0.0, maximum=1.0}
          subgraph @f = graph @f(%p: float32[2]) -> (%p) {
          }
          subgraph @h = graph @h(%p: float32[2]) -> (%p) {
          }
        }
        """,
    )


def test_a_result_with_an_epilogue_stays() -> None:
    """Else the epilogue would run over the next one."""
    check_declined(
        remove_unused_outputs,
        """
        graph @g(%x: float32[2]) -> (%b) {
          %a: float32[2], %b: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false} | clip() {minimum=0.0, maximum=1.0}
          subgraph @f = graph @f(%p: float32[2]) -> (%p, %p) {
          }
        }
        """,  # noqa: E501
    )


LOOP = """
graph @g(%x: float32[2]) -> (%w) {
  %zero = constant int32[] [0]
  %i: int32[], %u: float32[2], %v: float32[2], %w: float32[2] = while(%zero, %x, %x, %x) {condition="test", body="step"}
  subgraph @test = graph @test(%i: int32[], %u: float32[2], %v: float32[2], %w: float32[2]) -> (%less) {
    %three = constant int32[] [3]
    %less: bool[] = compare(%i, %three) {relation="less"}
  }
  subgraph @step = graph @step(%i: int32[], %u: float32[2], %v: float32[2], %w: float32[2]) -> (%j, %u1, %v, %w1) {
    %one = constant int32[] [1]
    %j: int32[] = add(%i, %one)
    %u1: float32[2] = add(%u, %w)
    %w1: float32[2] = add(%w, %v)
  }
}
"""  # noqa: E501


def test_loops() -> None:
    """%u only feeds itself; %v, which nothing reads behind the loop, feeds %w; %i decides when it ends."""
    decisions = check_rewrite(
        remove_unused_outputs,
        LOOP,
        """
        graph @g(%x: float32[2]) -> (%w) {
          %zero = constant int32[] [0]
          %i: int32[], %v: float32[2], %w: float32[2] = while(%zero, %x, %x) {condition="test", body="step"}
          subgraph @test = graph @test(%i: int32[], %v: float32[2], %w: float32[2]) -> (%less) {
            %three = constant int32[] [3]
            %less: bool[] = compare(%i, %three) {relation="less"}
          }
          subgraph @step = graph @step(%i: int32[], %v: float32[2], %w: float32[2]) -> (%j, %v, %w1) {
            %one = constant int32[] [1]
            %j: int32[] = add(%i, %one)
            %w1: float32[2] = add(%w, %v)
          }
        }
        """,
    )
    assert [decision.reason for decision in decisions if decision.fired] == [
        "no node depends on its result %u"
    ]


def test_what_is_read_stays() -> None:
    check_declined(remove_unused_outputs, LOOP.replace("-> (%w)", "-> (%w, %u)", 1))
