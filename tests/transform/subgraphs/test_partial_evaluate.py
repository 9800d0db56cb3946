from __future__ import annotations

from microfold.ir.graph import verify
from microfold.ir.text import parse
from microfold.passes.context import Decision, PassContext
from microfold.transform.subgraphs.inline import inline
from microfold.transform.subgraphs.partial_evaluate import PartialEvaluate
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite
from tests.transform.subgraphs.test_remove_unused_outputs import LOOP

CONDITION = """
graph @g(%x: float32[2]) -> (%y) {{
  %c = constant bool[1] [{}]
  %y: float32[2] = if(%c, %x) {{then="f", otherwise="h"}} | clip() {{minimum=0.0, maximum=1.0}}
  subgraph @f = graph @f(%p: float32[2]) -> (%p) {{
  }}
  subgraph @h = graph @h(%p: float32[2]) -> (%r) {{
    %r: float32[2] = add(%p, %p)
  }}
}}
"""


def test_conditions() -> None:
    for value, name in (("true", "f"), ("false", "h")):
        before = CONDITION.format(value)
        after = before.replace('if(%c, %x) {then="f", otherwise="h"}', f'call(%x) {{body="{name}", @}}')
        after = after.replace("@}", 'composite="", compiler="", stateful=false}')
        after = "\n".join(line for line in after.splitlines() if "constant" not in line) + "\n"
        (decision,) = check_rewrite(PartialEvaluate(), before, after)
        assert decision.reason == f"its condition is {value}"


def test_a_computed_condition() -> None:
    text = CONDITION.format("true").replace("(%x: float32[2])", "(%x: float32[2], %c: bool[1])", 1)
    text = "\n".join(line for line in text.splitlines() if "constant" not in line)
    check_declined(PartialEvaluate(), text, "its condition is computed")


def test_a_loop() -> None:
    graph = parse(LOOP)
    decisions: list[Decision] = []
    step = PartialEvaluate()
    unrolled = step(graph, PassContext(sink=decisions.append))
    verify(unrolled)
    assert [node.op.name for node in unrolled.nodes] == ["call"] * 3
    assert decisions[0].reason == "it runs 3 times over the 3 nodes of @step"
    assert_same_meaning(graph, unrolled)
    flat = inline(unrolled)
    assert not any(node.op.bodies for node in flat.nodes)
    assert len(flat.nodes) == 9
    assert_same_meaning(graph, flat)
    assert step(unrolled) is unrolled


def test_a_loop_that_never_runs() -> None:
    graph = parse(LOOP.replace("constant int32[] [0]", "constant int32[] [7]", 1))
    result = PartialEvaluate()(graph)
    assert not result.nodes
    assert result.outputs == graph.inputs


def test_loops_that_stay() -> None:
    from_outside = LOOP.replace("(%x: float32[2])", "(%x: float32[2], %zero: int32[])", 1)
    from_outside = from_outside.replace("  %zero = constant int32[] [0]\n", "")
    check_declined(PartialEvaluate(), from_outside, "depends on %i, which is not constant before the loop")
    check_declined(PartialEvaluate(max_nodes=8), LOOP, "it runs 3 times; at most 2 copies")
    endless = LOOP.replace("%one = constant int32[] [1]", "%one = constant int32[] [0]")
    assert PartialEvaluate()(graph := parse(endless)) is graph
    by_data = LOOP.replace("%three = constant int32[] [3]", '%t: bool[2] = compare(%w, %u) {relation="less"}')
    by_data = by_data.replace(
        '%less: bool[] = compare(%i, %three) {relation="less"}',
        "%less: bool[1] = strided_slice(%t) {begin=(0,), size=(1,), strides=(1,)}",
    )
    check_declined(PartialEvaluate(), by_data, "which is not constant before the loop")
