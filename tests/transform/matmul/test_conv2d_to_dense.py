"""Convolutions whose only window is the whole image become fully connected layers."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.text import to_text
from microfold.ir.types import ElementType
from microfold.simulate.program import simulator
from microfold.transform.matmul.conv2d_to_dense import conv2d_to_dense
from microfold.verification import verify
from tests.evaluation import assert_same_meaning
from tests.kernels.graphs import RELU6, conv2d_graph, int8_element
from tests.kernels.packing.test_float16 import as_float16
from tests.kernels.portable import as_float, as_int16
from tests.needs import CROSS_TOOLS
from tests.transform.check import check_declined, check_rewrite

PLAIN = "strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))"


def test_rewrite() -> None:
    check_rewrite(
        conv2d_to_dense,
        f"""
        graph @g(%x: int8[1,1,2,2] q(0.5, 3)) -> (%y) {{
          %w = constant int8[2,1,2,2] q(axis=0, scales=[0.25, 0.125], zero_points=0) [1, 2, 3, 4, 5, 6, 7, 8]
          %b = constant int32[2] [10, -20]
          %y: int8[1,1,1,2] q(2.0, -1) = conv2d(%x, %w, %b) {{{PLAIN}}}
        }}
        """,
        """
        graph @g(%x: int8[1,1,2,2] q(0.5, 3)) -> (%y) {
          %y_row: int8[1,4] q(0.5, 3) = reshape(%x) {shape=(1, 4)}
          %w = constant int8[2,4] q(axis=0, scales=[0.25, 0.125], zero_points=0) [1, 2, 3, 4, 5, 6, 7, 8]
          %b = constant int32[2] [10, -20]
          %y_product: int8[1,2] q(2.0, -1) = fully_connected(%y_row, %w, %b)
          %y: int8[1,1,1,2] q(2.0, -1) = reshape(%y_product) {shape=(1, 1, 1, 2)}
        }
        """,
    )


@pytest.mark.parametrize("height", [1, 3])
@pytest.mark.parametrize("out", [int8_element(0.05, -128), int8_element(2.0, 3), int8_element(0.0004, 11)])
def test_the_meaning_stays(height: int, out: ElementType) -> None:
    graph = conv2d_graph(height, 2, 7, 5, (height, 2), activation=RELU6, out=out)
    for before, tolerance in ((graph, 0.0), (as_int16(graph), 0.0), (as_float(graph), 1e-5)):
        after = conv2d_to_dense(before)
        assert [node.op.name for node in after.nodes] == ["reshape", "fully_connected", "reshape"]
        assert_same_meaning(before, after, tolerance=tolerance)
        assert conv2d_to_dense(after) is after


def test_halves() -> None:
    before = as_float16(conv2d_graph(2, 2, 5, 3, (2, 2)))
    assert_same_meaning(before, conv2d_to_dense(before), tolerance=1e-2)


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (conv2d_graph(2, 2, 3, 2, (1, 2)), "its window of 1 x 2 is not exactly its image"),
        (
            conv2d_graph(1, 1, 3, 2, (1, 1), padding=((1, 1), (0, 0))),
            "its window of 1 x 1 is not exactly its image",
        ),
        (conv2d_graph(3, 1, 3, 2, (2, 1), strides=(2, 2)), "its window of 2 x 1 is not exactly its image"),
    ],
)
def test_declined(graph: Graph, reason: str) -> None:
    check_declined(conv2d_to_dense, to_text(graph), reason)


def test_groups_stay() -> None:
    check_declined(
        conv2d_to_dense,
        f"""
        graph @g(%x: float32[1,1,1,4]) -> (%y) {{
          %w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]
          %y: float32[1,1,1,2] = conv2d(%x, %w) {{{PLAIN}}}
        }}
        """,
        "its channels are in groups",
    )


def test_filters_that_are_computed_stay() -> None:
    check_declined(
        conv2d_to_dense,
        f"""
        graph @g(%x: float32[1,1,1,2], %w: float32[2,1,1,2]) -> (%y) {{
          %y: float32[1,1,1,2] = conv2d(%x, %w) {{{PLAIN}}}
        }}
        """,
        "%w is not constant",
    )


@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize(("core", "most"), [("cortex-m4", 5200), ("cortex-m0plus", 18500)])
def test_fewer_instructions(core: str, most: int) -> None:
    """64 inputs to 64 outputs: convolutions took 7,196 on M4, and 49,798 on M0+ for four pixels at a time."""
    program = compile_graph(conv2d_graph(1, 1, 64, 64, (1, 1)), target.load(core))
    inputs = verify.input_sets([buffer.type for buffer in program.inputs], 8)
    assert verify.verify(program, inputs).exact
    with simulator(program) as machine:
        assert machine.run(inputs[3:4], layers=False).instructions[0] <= most
