"""Choices of passes: whatever is chosen, graphs mean the same."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.errors import InputError
from microfold.ir.graph import Graph, verify
from microfold.ir.text import parse, to_text
from microfold.kernels.selection.node_cost import NodeCosts
from microfold.kernels.selection.objective import Objective
from microfold.passes.choices import Choices, trace_of, trace_text
from microfold.passes.context import PassContext
from microfold.passes.kinds import Pass
from microfold.transform.layout.optimize_layout_transform import optimize_layout_transform
from microfold.transform.matmul.dense_to_sparse import DenseToSparse
from microfold.transform.placement.fuse_elementwise import fuse_elementwise
from microfold.transform.placement.fuse_ops import FuseOps
from microfold.transform.placement.fuse_residual import fuse_residual
from microfold.transform.simplify.split_grouped_conv2d import split_grouped_conv2d
from tests.evaluation import assert_same_meaning
from tests.transform.arenas import Counted
from tests.transform.matmul.test_dense_to_sparse import layer, pruned
from tests.transform.placement.test_fuse_ops import TABLE
from tests.transform.placement.test_fuse_residual import ONE
from tests.transform.simplify.test_split_grouped_conv2d import SAME

GROUPS = f"""
graph @g(%x: int8[1,2,2,16] q(0.1, 3)) -> (%y) {{
  %w = constant int8[16,3,3,4] q(0.5, 0) {[7] * 576}
  %y: int8[1,2,2,16] q(20.0, -5) = conv2d(%x, %w) {SAME}
}}
"""
LOOP = """
graph @g(%x: float32[1,4], %z: float32[1,4]) -> (%y) {
  %a: float32[1,4] = add(%x, %z)
  %y: float32[1,4] = tanh(%a)
}
"""
TRANSPOSES = """
graph @g(%x: int8[1,4,4,8] q(0.5, 0)) -> (%y) {
  %t: int8[1,8,4,4] q(0.5, 0) = transpose(%x) {permutation=(0, 3, 1, 2)}
  %r: int8[1,8,4,4] q(0.5, 0) = clip(%t) {minimum=0.0, maximum=6.0}
  %y: int8[1,4,4,8] q(0.5, 0) = transpose(%r) {permutation=(0, 2, 3, 1)}
}
"""


def together(cycles: float) -> PassContext:
    """Kernels that take 30 cycles for an operator, and so many for several."""

    def cost(node: object, graph: Graph) -> float:
        del graph
        several = getattr(node, "epilogue", ()) or getattr(getattr(node, "op", None), "steps", ())
        return cycles if several else 30.0

    return PassContext(node_cost=cost, node_scratch=lambda node, graph: 0.0)  # noqa: ARG005


M4 = PassContext(node_cost=NodeCosts(target.load("cortex-m4"), Objective(cycles=3.0, flash=1.0, arena=1.0)))
FUSED = {"fused", "apart"}
CASES = [
    pytest.param(FuseOps(), parse(TABLE), together(50.0), FUSED, id="table"),
    pytest.param(FuseOps(), parse(TABLE), together(70.0), FUSED, id="table apart"),
    pytest.param(fuse_elementwise, parse(LOOP), together(50.0), FUSED, id="loop"),
    pytest.param(fuse_elementwise, parse(LOOP), together(70.0), FUSED, id="loops"),
    pytest.param(split_grouped_conv2d, parse(GROUPS), M4, {"1 parts", "2 parts", "4 parts"}, id="groups"),
    pytest.param(
        DenseToSparse(), layer(pruned(8, 256, 0.1)), PassContext(), {"sparse", "dense"}, id="sparse"
    ),
    pytest.param(DenseToSparse(), layer(pruned(16, 64, 0.6)), PassContext(), {"sparse", "dense"}, id="dense"),
    pytest.param(
        fuse_residual, parse(ONE), PassContext(arenas=Counted()), {"as planned", "apart"}, id="residual"
    ),
    pytest.param(
        fuse_residual, parse(ONE), PassContext(arenas=Counted(full=())), {"as planned", "fused"}, id="sum"
    ),
    pytest.param(
        optimize_layout_transform, parse(TRANSPOSES), PassContext(), {"moved", "as they are"}, id="layout"
    ),
]


@pytest.mark.parametrize(("step", "graph", "context", "ways"), CASES)
def test_all_ways_mean_the_same(step: Pass, graph: Graph, context: PassContext, ways: set[str]) -> None:
    listing = Choices(listing=True)
    plain = to_text(step(graph, context))
    assert to_text(step(graph, replace(context, choices=listing))) == plain
    (choice,) = listing.asked
    assert choice.name.split()[0] == step.name
    assert choice.estimates.keys() == ways
    found: dict[str, str] = {}
    for way in ways:
        result = step(graph, replace(context, choices=Choices({choice.name: way})))
        verify(result)
        assert_same_meaning(graph, result)
        found[way] = to_text(result)
    assert len({*found.values()}) == len(ways)
    assert found[choice.taken] == plain


def test_where_there_is_no_doubt_nothing_is_asked() -> None:
    """A step that costs nothing in the epilogue."""
    listing = Choices(listing=True)
    FuseOps()(parse(TABLE), replace(together(30.0), choices=listing))
    assert listing.asked == []


def test_floats_have_one_order() -> None:
    listing = Choices(listing=True)
    text = TRANSPOSES.replace(" q(0.5, 0)", "").replace("int8", "float32")
    optimize_layout_transform(parse(text), PassContext(choices=listing))
    assert listing.asked == []


def test_nodes_of_one_kind_have_one_answer() -> None:
    """Whatever they are called, and whatever is in their constants; others have others."""
    other = TABLE.replace("%y", "%other").replace("-50", "77")
    longer = TABLE.replace("[1,4]", "[1,8]").replace("3, 7]", "3, 7, 1, 2, 3, 4]")
    names: list[str] = []
    for text in (TABLE, other, longer):
        listing = Choices(listing=True)
        FuseOps()(parse(text), replace(together(50.0), choices=listing))
        names += [choice.name for choice in listing.asked]
    assert names[0] == names[1] != names[2]


def test_what_is_not_there_is_passed_over() -> None:
    choices = Choices({"layers": "upside down"})
    assert choices.take("layers", "whole", lambda: {"whole": 1.0, "by rows": 2.0}) == "whole"
    assert Choices().take("layers", "whole", dict) == "whole"  # nothing is estimated


def test_traces_as_texts() -> None:
    assert trace_text({}) == ""
    trace = {"layers": "by rows", "fuse_residual sums": "apart"}
    assert trace_of(trace_text(trace)) == trace
    assert trace_text(dict(reversed(trace.items()))) == trace_text(trace)
    with pytest.raises(InputError, match="must be a JSON object"):
        trace_of("[1]")
