"""Elementwise operators of float32 become one loop, where that is less."""

from __future__ import annotations

from msgspec.structs import replace

from microfold import target
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.text import parse, to_text
from microfold.kernels.selection.node_cost import NodeCosts
from microfold.kernels.selection.objective import Objective
from microfold.ops.elementwise.expression import Expression
from microfold.passes.context import Decision, NodeCost, PassContext
from microfold.pipeline import optimize
from microfold.transform.placement.fuse_elementwise import fuse_elementwise
from tests.transform.check import check_declined, check_rewrite


def _each(node: Node, graph: Graph) -> float:
    """A loop costs ten for what is around it, and one for each function."""
    del graph
    return 10.0 + (len(node.op.steps) if isinstance(node.op, Expression) else 1 + len(node.epilogue))


def _with(cost: NodeCost | None) -> PassContext:
    return PassContext(node_cost=cost)


def test_a_chain() -> None:
    decisions = check_rewrite(
        fuse_elementwise,
        """
        graph @g(%x: float32[1,4,4,2], %z: float32[1,4,4,2]) -> (%y) {
          %s = constant float32[2] [0.5, 2.0]
          %a: float32[1,4,4,2] = mul(%x, %s)
          %b: float32[1,4,4,2] = add(%a, %z) | clip() {minimum=0.0, maximum=inf}
          %y: float32[1,4,4,2] = tanh(%b)
        }
        """,
        """
        graph @g(%x: float32[1,4,4,2], %z: float32[1,4,4,2]) -> (%y) {
          %s = constant float32[2] [0.5, 2.0]
          %y: float32[1,4,4,2] = expression(%x, %s, %z) {steps=(("mul", (0, 1), ()), ("add", (3, 2), ()), ("clip", (4,), (0.0, inf)), ("tanh", (5,), ())), out=none}
        }
        """,  # noqa: E501
        _with(_each),
    )
    assert [str(decision) for decision in decisions] == [
        "fuse_elementwise: tanh %y: one loop with mul %a, add %b: about 14 cycles"
    ]


def test_between_integers() -> None:
    """No tensor of floats is left: here dequantised and quantised ends are in the loop."""
    check_rewrite(
        fuse_elementwise,
        """
        graph @g(%x: int8[1,4,4,2] q(0.1, 3), %z: int8[1,4,4,2] q(0.05, -8)) -> (%y) {
          %a: float32[1,4,4,2] = dequantize(%x)
          %b: float32[1,4,4,2] = dequantize(%z) | clip() {minimum=0.0, maximum=inf}
          %c: float32[1,4,4,2] = mul(%a, %b)
          %y: int8[1,4,4,2] q(0.2, 1) = quantize(%c)
        }
        """,
        """
        graph @g(%x: int8[1,4,4,2] q(0.1, 3), %z: int8[1,4,4,2] q(0.05, -8)) -> (%y) {
          %y: int8[1,4,4,2] q(0.2, 1) = expression(%x, %z) {steps=(("dequantize", (0,), ()), ("dequantize", (1,), ()), ("clip", (3,), (0.0, inf)), ("mul", (2, 4), ())), out=int8 q(0.2, 1)}
        }
        """,  # noqa: E501
        _with(_each),
    )


def test_what_is_quantised_begins_a_loop() -> None:
    check_declined(
        fuse_elementwise,
        """
        graph @g(%x: float32[4]) -> (%y) {
          %a: int8[4] q(0.1, 3) = quantize(%x)
          %y: float32[4] = dequantize(%a)
        }
        """,
        "it quantises an operand of dequantize %y",
        _with(_each),
    )


def test_a_diamond() -> None:
    check_rewrite(
        fuse_elementwise,
        """
        graph @g(%x: float32[8]) -> (%y) {
          %a: float32[8] = unary(%x) {function="square", out=float32}
          %b: float32[8] = logistic(%a) {out=float32}
          %y: float32[8] = mul(%a, %b)
        }
        """,
        """
        graph @g(%x: float32[8]) -> (%y) {
          %y: float32[8] = expression(%x) {steps=(("square", (0,), ()), ("logistic", (1,), ()), ("mul", (1, 2), ())), out=none}
        }
        """,  # noqa: E501
        _with(_each),
    )


CHAIN = """
graph @g(%x: float32[8], %z: float32[8]) -> (OUTPUTS) {
  %a: float32[8] = mul(%x, %z)
  %y: float32[8] = add(%a, %x)
}
"""


def test_other_readers() -> None:
    text = CHAIN.replace("OUTPUTS", "%y, %a")
    check_declined(fuse_elementwise, text, "%a has readers outside of the loop of add %y", _with(_each))


def test_where_two_loops_are_less() -> None:
    def dear(node: Node, graph: Graph) -> float:
        return 50.0 if isinstance(node.op, Expression) else _each(node, graph)

    check_declined(
        fuse_elementwise,
        CHAIN.replace("OUTPUTS", "%y"),
        "one loop with add %y needs about 50 cycles; separate loops need 22",
        _with(dear),
    )


def test_where_no_kernel_has_both() -> None:
    def bare(node: Node, graph: Graph) -> float | None:
        return None if isinstance(node.op, Expression) else _each(node, graph)

    text = CHAIN.replace("OUTPUTS", "%y")
    check_declined(fuse_elementwise, text, "no kernel computes it and add %y in one loop", _with(bare))


def test_where_costs_are_not_known() -> None:
    check_declined(fuse_elementwise, CHAIN.replace("OUTPUTS", "%y"))


def test_where_flash_is_short() -> None:
    context = replace(_with(_each), save_flash=True)
    text = CHAIN.replace("OUTPUTS", "%y")
    check_declined(fuse_elementwise, text, "each loop would need separate code, and flash is short", context)


def test_a_value_that_is_spread_is_computed_once() -> None:
    check_declined(
        fuse_elementwise,
        """
        graph @g(%x: float32[1,1,2], %z: float32[4,4,2]) -> (%y) {
          %a: float32[1,1,2] = tanh(%x)
          %y: float32[4,4,2] = mul(%z, %a)
        }
        """,
        "it has 2 elements, and mul %y has 32",
        _with(_each),
    )


def test_operands_are_not_kept_while_others_are_computed() -> None:
    """The sum takes less RAM than both of its operands, which would wait for the convolution."""
    check_declined(
        fuse_elementwise,
        """
        graph @g(%x: float32[1,4,4,8], %z: float32[1,4,4,8]) -> (%y) {
          %a: float32[1,4,4,8] = add(%x, %z)
          %b: float32[1,4,4,8] = sub(%x, %z)
          %m: float32[1,2,2,8] = max_pool2d(%a) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
          %r: float32[1,4,4,8] = resize_nearest_neighbor(%m) {size=(4, 4), align_corners=false, half_pixel_centers=false}
          %y: float32[1,4,4,8] = mul(%b, %r)
        }
        """,  # noqa: E501
        "its operands would be kept for mul %y, and need more RAM than its result",
        _with(_each),
    )


def test_integers_are_left_alone() -> None:
    check_declined(
        fuse_elementwise,
        """
        graph @g(%x: int32[8]) -> (%y) {
          %a: int32[8] = mul(%x, %x)
          %y: int32[8] = add(%a, %x)
        }
        """,
        "",
        _with(_each),
    )


def test_a_long_chain_is_several_loops() -> None:
    lines = "".join(f"%v{k + 1}: float32[64] = mul(%v{k}, %v0)\n" for k in range(60))
    graph = parse(f"graph @g(%v0: float32[64]) -> (%v60) {{ {lines} }}")
    result = fuse_elementwise(graph, _with(_each))
    assert [len(node.op.steps) for node in result.nodes if isinstance(node.op, Expression)] == [12, 24, 24]


def test_a_second_run_of_the_pipeline_changes_nothing() -> None:
    decisions: list[Decision] = []
    costs = NodeCosts(target.load("cortex-m4"), Objective(cycles=3.0, flash=1.0, arena=1.0))
    text = CHAIN.replace("OUTPUTS", "%y").replace("[8]", "[800]")
    graph = optimize(parse(text), PassContext(node_cost=costs))
    assert [node.op.name for node in graph.nodes] == ["expression"]
    again = optimize(graph, PassContext(node_cost=costs, sink=decisions.append))
    assert to_text(again) == to_text(graph)
    assert not any(decision.fired for decision in decisions)
