from __future__ import annotations

import pytest

from microfold.ir.graph import Graph, verify
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse
from microfold.ops.control.loop import Loop
from microfold.passes.context import Decision, PassContext
from microfold.transform.subgraphs.limit_loops import LimitLoops
from microfold.transform.subgraphs.lower_loops import lower_loops
from tests import loops
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite


def lowered(graph: Graph, limit: int | None = None) -> tuple[Graph, Loop, str]:
    """The graph, its loop, and why it is that one."""
    limited = LimitLoops(limit)(graph)
    decisions: list[Decision] = []
    result = lower_loops(limited, PassContext(sink=decisions.append))
    verify(result)
    assert_same_meaning(limited, result)
    (loop,) = (node.op for node in result.nodes if isinstance(node.op, Loop))
    return result, loop, decisions[-1].reason


def test_a_known_number_of_runs() -> None:
    """The counter goes, and what no run changes is no result."""
    check_rewrite(
        lower_loops,
        loops.SWAP,
        """
        graph @swap(%x: int32[3], %y: int32[3], %k: int32[3]) -> (%u, %v) {
          %u: int32[3], %v: int32[3] = loop(%x, %y, %k) {body="step_1", runs=5, condition="", invariants=1, may_stop=false}
          subgraph @step_1 = graph @step_1(%a: int32[3], %b: int32[3], %c: int32[3]) -> (%b1, %a) {
            %b1: int32[3] = add(%b, %c)
          }
        }
        """,  # noqa: E501
    )


def test_a_bound() -> None:
    _, loop, reason = lowered(loops.bounded())
    assert (loop.runs, bool(loop.condition), loop.invariants, loop.may_stop) == (4, True, 1, False)
    assert reason == "it runs at most 4 times"


def test_limits() -> None:
    assert lowered(loops.unbounded(), 7)[1].may_stop
    assert lowered(loops.bounded(), 4)[1] == lowered(loops.bounded())[1]
    _, loop, reason = lowered(loops.bounded(), 3)
    assert (loop.runs, loop.may_stop) == (3, True)
    assert reason == "it is stopped after 3 runs"
    _, loop, _ = lowered(loops.swap(), 3)
    assert (loop.runs, loop.may_stop, bool(loop.condition)) == (3, True, True)
    _, loop, _ = lowered(loops.swap(), 5)
    assert (loop.runs, loop.may_stop, bool(loop.condition)) == (5, False, False)


def test_stopped_loops_are_counted() -> None:
    import numpy as np

    graph, _, _ = lowered(loops.unbounded(), 7)
    interpreter = Interpreter(graph)
    for count, stopped in ((7, 0), (8, 1), (-1, 1), (2**31 - 1, 2)):
        interpreter.run(np.array(count, np.int32))
        assert interpreter.cut_short == stopped


@pytest.mark.parametrize("limit", ["65537", "2147483647"])
def test_no_sensible_bound(limit: str) -> None:
    text = loops.BOUNDED.replace("int32[] [4]", f"int32[] [{limit}]")
    check_declined(lower_loops, text, f"it may run {limit} times; a bound must be at most 65536")


def test_one_body_of_two_loops() -> None:
    """Each gets its own, with its own constants."""
    text = """
    graph @g(%x: int32[]) -> (%a, %b) {
      %five = constant int32[] [5]
      %nine = constant int32[] [9]
      %zero = constant int32[] [0]
      %i: int32[], %a: int32[], %v: int32[] = while(%zero, %x, %five) {condition="test", body="step"}
      %k: int32[], %b: int32[], %w: int32[] = while(%zero, %a, %nine) {condition="test", body="step"}
      subgraph @test = graph @test(%i: int32[], %x: int32[], %v: int32[]) -> (%less) {
        %two = constant int32[] [2]
        %less: bool[] = compare(%i, %two) {relation="less"}
      }
      subgraph @step = graph @step(%i: int32[], %x: int32[], %v: int32[]) -> (%j, %y, %v) {
        %one = constant int32[] [1]
        %j: int32[] = add(%i, %one)
        %y: int32[] = mul(%x, %v)
      }
    }
    """
    graph = parse(text)
    result = lower_loops(graph)
    verify(result)
    assert_same_meaning(graph, result)
    first, second = (node.op for node in result.nodes)
    assert isinstance(first, Loop)
    assert isinstance(second, Loop)
    assert first.invariants == second.invariants == 0
    bodies = [result.subgraphs[op.body] for op in (first, second)]
    assert {v for g in bodies for n in g.nodes for v in n.outputs} == {
        *(v for n in bodies[0].nodes for v in n.outputs),
        *(v for n in bodies[1].nodes for v in n.outputs),
    }
    assert not {v for n in bodies[0].nodes for v in n.outputs} & {
        v for n in bodies[1].nodes for v in n.outputs
    }


def test_the_same_bytes_twice() -> None:
    """Keras keeps the last state also as a list of one: it is a reshape behind the loop."""
    text = """
    graph @g(%x: int32[2], %r: int32[1,2]) -> (%a, %b) {
      %zero = constant int32[] [0]
      %i: int32[], %a: int32[2], %b: int32[1,2] = while(%zero, %x, %r) {condition="test", body="step"}
      subgraph @test = graph @test(%i: int32[], %p: int32[2], %q: int32[1,2]) -> (%less) {
        %two = constant int32[] [2]
        %less: bool[] = compare(%i, %two) {relation="less"}
      }
      subgraph @step = graph @step(%i: int32[], %p: int32[2], %q: int32[1,2]) -> (%j, %s, %t) {
        %one = constant int32[] [1]
        %j: int32[] = add(%i, %one)
        %s: int32[2] = add(%p, %p)
        %t: int32[1,2] = reshape(%s) {shape=(1, 2)}
      }
    }
    """
    graph = parse(text)
    result = lower_loops(graph)
    assert_same_meaning(graph, result)
    assert [node.op.name for node in result.nodes] == ["loop", "reshape"]
    never = parse(text.replace("[2]\n        %less", "[0]\n        %less"))
    assert_same_meaning(never, lower_loops(never))
