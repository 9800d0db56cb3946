from __future__ import annotations

from microfold.ir.node import Node
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.transform.layout.alter_op_layout import AlterOpLayout
from tests.transform.check import check_declined, check_rewrite

POOL = "size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))"


def blocks_of_four(node: Node) -> str | None:
    """A kernel that computes 4 channels at once, and takes other images as they are."""
    return "NCHW4c" if node.outputs[0].type.shape[-1] % 4 == 0 or node.output.type.rank == 5 else None


WISH = AlterOpLayout({MaxPool2D: blocks_of_four, AveragePool2D: blocks_of_four})


def test_a_row_of_operators_with_one_wish() -> None:
    check_rewrite(
        WISH,
        f"""\
        graph @g(%x: int8[1,8,8,8] q(0.5, 0)) -> (%y) {{
          %a: int8[1,4,4,8] q(0.5, 0) = max_pool2d(%x) {{{POOL}}}
          %b: int8[1,4,4,8] q(0.5, 0) = clip(%a) {{minimum=0.0, maximum=6.0}}
          %y: int8[1,2,2,8] q(0.5, 0) = average_pool2d(%b) {{{POOL}}}
        }}
        """,
        f"""\
        graph @g(%x: int8[1,8,8,8] q(0.5, 0)) -> (%y#1) {{
          %x#1: int8[1,2,8,8,4] q(0.5, 0) = layout_transform(%x) {{source="NHWC", target="NCHW4c"}}
          %a: int8[1,2,4,4,4] q(0.5, 0) = max_pool2d(%x#1) {{{POOL}, layout="NCHW4c"}}
          %b: int8[1,2,4,4,4] q(0.5, 0) = clip(%a) {{minimum=0.0, maximum=6.0}}
          %y: int8[1,2,2,2,4] q(0.5, 0) = average_pool2d(%b) {{{POOL}, layout="NCHW4c"}}
          %y#1: int8[1,2,2,8] q(0.5, 0) = layout_transform(%y) {{source="NCHW4c", target="NHWC"}}
        }}
        """,
    )


def test_wishes_depend_on_shapes() -> None:
    text = f"""\
        graph @g(%x: int8[1,8,8,6] q(0.5, 0)) -> (%y) {{
          %y: int8[1,4,4,6] q(0.5, 0) = max_pool2d(%x) {{{POOL}}}
        }}
        """
    check_declined(WISH, text, "its layout is NHWC")


def test_no_wishes_by_default() -> None:
    text = f"""\
        graph @g(%x: int8[1,8,8,8] q(0.5, 0)) -> (%y) {{
          %y: int8[1,4,4,8] q(0.5, 0) = max_pool2d(%x) {{{POOL}}}
        }}
        """
    check_declined(AlterOpLayout(), text)
