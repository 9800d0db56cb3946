from __future__ import annotations

import pytest

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.ir.text import parse
from microfold.passes.context import NodeCost, PassContext
from microfold.transform.placement.fuse_ops import FuseOps
from tests.transform.check import check_declined, check_rewrite

fuse_ops = FuseOps()


def test_clip_into_convolution() -> None:
    check_rewrite(
        fuse_ops,
        """
        graph @g(%x: int8[1,3,3,1] q(0.1, 3)) -> (%y) {
          %w = constant int8[2,1,1,1] q(axis=0, scales=[0.5, 0.25], zero_points=0) [100, -50]
          %a: int8[1,3,3,2] q(2.0, -5) = conv2d(%x, %w) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
          %b: int8[1,3,3,2] q(2.0, -5) = clip(%a) {minimum=0.0, maximum=inf}
          %y: int8[1,3,3,2] q(2.0, -5) = clip(%b) {minimum=-inf, maximum=60.0}
        }
        """,  # noqa: E501
        """
        graph @g(%x: int8[1,3,3,1] q(0.1, 3)) -> (%y) {
          %w = constant int8[2,1,1,1] q(axis=0, scales=[0.5, 0.25], zero_points=0) [100, -50]
          %y: int8[1,3,3,2] q(2.0, -5) = conv2d(%x, %w) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))} | clip() {minimum=0.0, maximum=inf} | clip() {minimum=-inf, maximum=60.0}
        }
        """,  # noqa: E501
    )


@pytest.mark.parametrize(
    "producer",
    [
        "add(%x, %x)",
        "max_pool2d(%x) {size=(1, 1), strides=(1, 1), padding=((0, 0), (0, 0))}",
        "average_pool2d(%x) {size=(1, 1), strides=(1, 1), padding=((0, 0), (0, 0))}",
    ],
)
def test_clip_into_others(producer: str) -> None:
    check_rewrite(
        fuse_ops,
        f"""
        graph @g(%x: float32[1,2,2,1]) -> (%y) {{
          %a: float32[1,2,2,1] = {producer}
          %y: float32[1,2,2,1] = clip(%a) {{minimum=0.0, maximum=1.0}}
        }}
        """,
        f"""
        graph @g(%x: float32[1,2,2,1]) -> (%y) {{
          %y: float32[1,2,2,1] = {producer} | clip() {{minimum=0.0, maximum=1.0}}
        }}
        """,
    )


@pytest.mark.parametrize("outputs", ["%y, %z", "%y, %a"])
def test_other_readers(outputs: str) -> None:
    check_declined(
        fuse_ops,
        f"""
        graph @g(%x: float32[2]) -> ({outputs}) {{
          %a: float32[2] = add(%x, %x)
          %y: float32[2] = clip(%a) {{minimum=0.0, maximum=1.0}}
          %z: float32[2] = add(%a, %x)
        }}
        """,
        "%a has other readers",
    )


def test_next_state_is_a_reader() -> None:
    check_declined(
        fuse_ops,
        """
        graph @g(%x: float32[2]) -> (%y) {
          state %s: float32[2] initial [0.0, 0.0] next %a
          %a: float32[2] = add(%x, %s)
          %y: float32[2] = clip(%a) {minimum=0.0, maximum=1.0}
        }
        """,
        "%a has other readers",
    )


def test_producers_without_epilogue() -> None:
    check_declined(
        fuse_ops,
        """
        graph @g(%x: float32[2]) -> (%y, %z) {
          %a: float32[1,2] = reshape(%x) {shape=(1, 2)}
          %y: float32[1,2] = clip(%a) {minimum=0.0, maximum=1.0}
          %z: float32[2] = clip(%x) {minimum=0.0, maximum=1.0}
        }
        """,
        "reshape has no epilogue",
    )


TANH = """
graph @g(%x: float32[2]) -> (%y) {
  %a: float32[2] = add(%x, %x)
  %y: float32[2] = tanh(%a)
}
"""


def test_rule_refuses_or_admits() -> None:
    check_declined(fuse_ops, TANH, "kernels cannot run tanh")

    def anything(producer: Node, step: Op) -> None:  # noqa: ARG001
        return None

    fused = """
        graph @g(%x: float32[2]) -> (%y) {
          %y: float32[2] = add(%x, %x) | tanh()
        }
        """
    check_rewrite(FuseOps(may_fuse=anything), TANH, fused)


def test_where_the_kernel_for_both_is_dearer() -> None:
    def cost(node: Node, graph: Graph) -> float:
        del graph
        return 100.0 if node.epilogue else 30.0

    check_declined(
        fuse_ops,
        """
        graph @g(%x: float32[2]) -> (%y) {
          %a: float32[2] = add(%x, %x)
          %y: float32[2] = clip(%a) {minimum=0.5, maximum=1.0}
        }
        """,
        "fused: about 100 cycles; separate: 60",
        PassContext(node_cost=cost),
    )


def test_where_no_kernel_computes_both() -> None:
    check_declined(
        fuse_ops,
        """
        graph @g(%c: bool[2], %x: float32[2]) -> (%y) {
          %a: float32[2] = select(%c, %x, %x)
          %y: float32[2] = clip(%a) {minimum=0.5, maximum=1.0}
        }
        """,
        "no kernel of the target computes select with it",
        PassContext(node_cost=_costs(None)),
    )


TABLE = """
graph @g(%x: int8[1,4] q(0.1, 3)) -> (%y) {
  %w = constant int8[1,4] q(0.5, 0) [100, -50, 3, 7]
  %a: int8[1,1] q(2.0, -5) = fully_connected(%x, %w)
  %y: int8[1,1] q(0.0078125, 0) = tanh(%a)
}
"""
LOOKED_UP = """
graph @g(%x: int8[1,4] q(0.1, 3)) -> (%y) {
  %w = constant int8[1,4] q(0.5, 0) [100, -50, 3, 7]
  %y: int8[1,1] q(0.0078125, 0) = fully_connected(%x, %w) {out=int8 q(2.0, -5)} | tanh()
}
"""


def _costs(together: float | None) -> NodeCost:
    """What a node with an epilogue takes; one without takes 30."""
    return lambda node, graph: together if node.epilogue else 30.0  # noqa: ARG005


def test_table_where_it_is_cheaper() -> None:
    context = PassContext(node_cost=_costs(59.0), node_scratch=_costs(30.0))
    check_rewrite(fuse_ops, TABLE, LOOKED_UP, context)


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        (PassContext(), "fully_connected kernels cannot run tanh"),
        (PassContext(node_cost=_costs(60.0)), "fused: about 60 cycles; separate: 60"),
        (PassContext(node_cost=_costs(None)), "no kernel of the target computes fully_connected with it"),
        (
            PassContext(node_cost=_costs(59.0), node_scratch=_costs(31.0)),
            "fused: 31 bytes of scratch; separate: 30",
        ),
        (PassContext(node_cost=_costs(59.0), save_flash=True), "flash is short"),
    ],
)
def test_table_apart(context: PassContext, reason: str) -> None:
    check_declined(fuse_ops, TABLE, reason, context)


def test_table_of_other_elements() -> None:
    check_declined(
        fuse_ops,
        TABLE.replace("int8[1,1] q(0.0078125, 0) = tanh(%a)", "float32[1,1] = dequantize(%a)"),
        "kernels look up int8; dequantize computes float32",
        PassContext(node_cost=_costs(1.0)),
    )


def test_the_level_of_fusion() -> None:
    text = """
        graph @g(%x: float32[2], %z: float32[2]) -> (%y) {
          %a: float32[2] = add(%x, %z)
          %y: float32[2] = clip(%a) {minimum=0.0, maximum=6.0}
        }
        """
    check_declined(FuseOps(fuse_opt_level=0), text, "fuse_opt_level 0 fuses nothing")
    graph = parse(text)
    assert len(FuseOps(fuse_opt_level=1)(graph).nodes) == len(FuseOps()(graph).nodes) == 1
    with pytest.raises(InputError, match="fuse_opt_level must be -1 to 4; got 5"):
        FuseOps(fuse_opt_level=5)(graph)
