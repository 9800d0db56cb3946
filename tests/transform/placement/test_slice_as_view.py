from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.text import parse
from microfold.transform.placement.slice_as_view import slice_as_view
from microfold.verification import verify
from tests.transform.check import check_declined, check_rewrite

LIMITS = "{minimum=0.0, maximum=6.0}"
HALVES = f"""
graph @g(%x: float32[1,16]) -> (%y) {{
  %a: float32[1,16] = clip(%x) {LIMITS}
  %b: float32[1,8] = strided_slice(%a) {{begin=(0, 0), size=(1, 8), strides=(1, 1)}}
  %c: float32[1,8] = strided_slice(%a) {{begin=(0, 8), size=(1, 8), strides=(1, 1)}}
  %d: float32[1,8] = abs(%c)
  %y: float32[1,8] = mul(%b, %d)
}}
"""


def test_blocks() -> None:
    check_rewrite(
        slice_as_view,
        HALVES,
        f"""
        graph @g(%x: float32[1,16]) -> (%y) {{
          %a: float32[1,16] = clip(%x) {LIMITS}
          %b: float32[1,8] = slice_view(%a) {{begin=(0, 0), size=(1, 8)}}
          %c: float32[1,8] = slice_view(%a) {{begin=(0, 8), size=(1, 8)}}
          %d: float32[1,8] = abs(%c)
          %y: float32[1,8] = mul(%b, %d)
        }}
        """,
    )


@pytest.mark.parametrize("core", ["host"])
def test_generated_code_reads_them_in_place(core: str) -> None:
    program = compile_graph(parse(HALVES), target.load(core))
    assert [layer.node.op.name for layer in program.layers] == ["clip", "expression"]
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.differences


@pytest.mark.parametrize(
    ("source", "begin", "size", "strides", "output", "reason"),
    [
        ("a", "0, 1", "1, 8", "1, 1", "y", "multiples of 8 bytes; this one would start at 4"),
        ("a", "0, 0", "2, 8", "1, 1", "y", "not one block"),
        ("a", "0, 0", "1, 8", "1, 2", "y", "skips or reverses elements"),
        ("x", "1, 0", "1, 8", "1, 1", "y", "no node computes %x"),
        ("a", "1, 0", "1, 8", "1, 1", "b", "%b leaves the graph"),
        ("a", "1, 0", "1, 8", "1, 1", "a, %y", "%a leaves the graph"),
    ],
)
def test_declined(source: str, begin: str, size: str, strides: str, output: str, reason: str) -> None:
    attributes = f"begin=({begin}), size=({size}), strides=({strides})"
    type = f"float32[{size.replace(' ', '')}]"
    check_declined(
        slice_as_view,
        f"""
        graph @g(%x: float32[2,16]) -> (%{output}) {{
          %a: float32[2,16] = clip(%x) {LIMITS}
          %b: {type} = strided_slice(%{source}) {{{attributes}}}
          %y: {type} = abs(%b)
        }}
        """,
        reason,
    )
