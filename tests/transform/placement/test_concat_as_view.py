from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import GraphError
from microfold.ir.text import parse
from microfold.ir.views import Views
from microfold.options import Options
from microfold.transform.placement.concat_as_view import concat_as_view
from microfold.verification import verify
from tests.transform.check import check_declined, check_rewrite

LIMITS = "{minimum=0.0, maximum=6.0}"


def test_parts_of_blocks() -> None:
    check_rewrite(
        concat_as_view,
        f"""
        graph @g(%x: float32[1,8], %y: float32[1,16]) -> (%d) {{
          %a: float32[1,8] = clip(%x) {LIMITS}
          %b: float32[1,16] = clip(%y) {LIMITS}
          %c: float32[1,24] = concatenate(%a, %b) {{axis=1}}
          %d: float32[1,24] = clip(%c) {LIMITS}
        }}
        """,
        f"""
        graph @g(%x: float32[1,8], %y: float32[1,16]) -> (%d) {{
          %a: float32[1,8] = clip(%x) {LIMITS}
          %b: float32[1,16] = clip(%y) {LIMITS}
          %c: float32[1,24] = concatenate_view(%a, %b) {{axis=1}}
          %d: float32[1,24] = clip(%c) {LIMITS}
        }}
        """,
    )


def test_what_cannot_be_computed_there_is_copied() -> None:
    # An input; a part of another view; the same value again.
    check_rewrite(
        concat_as_view,
        f"""
        graph @g(%x: float32[1,8]) -> (%d, %f) {{
          %a: float32[1,8] = clip(%x) {LIMITS}
          %b: float32[1,8] = abs(%a)
          %c: float32[1,24] = concatenate(%x, %a, %a) {{axis=1}}
          %d: float32[1,24] = clip(%c) {LIMITS}
          %e: float32[1,16] = concatenate(%a, %b) {{axis=1}}
          %f: float32[1,16] = clip(%e) {LIMITS}
        }}
        """,
        f"""
        graph @g(%x: float32[1,8]) -> (%d, %f) {{
          %a: float32[1,8] = clip(%x) {LIMITS}
          %b: float32[1,8] = abs(%a)
          %x_part: float32[1,8] = copy(%x)
          %a_part: float32[1,8] = copy(%a)
          %c: float32[1,24] = concatenate_view(%x_part, %a, %a_part) {{axis=1}}
          %d: float32[1,24] = clip(%c) {LIMITS}
          %a_part#1: float32[1,8] = copy(%a)
          %e: float32[1,16] = concatenate_view(%a_part#1, %b) {{axis=1}}
          %f: float32[1,16] = clip(%e) {LIMITS}
        }}
        """,
    )


@pytest.mark.parametrize(
    ("shape", "joined", "axis", "output", "reason"),
    [
        ("2,8", "2,16", 1, "d", "not whole blocks"),
        ("1,3", "1,6", 1, "d", "multiples of 8 bytes; one starts at 12"),
        ("1,8", "1,16", 1, "c", "its result leaves the graph"),
    ],
)
def test_declined(shape: str, joined: str, axis: int, output: str, reason: str) -> None:
    check_declined(
        concat_as_view,
        f"""
        graph @g(%x: float32[{shape}]) -> (%{output}) {{
          %a: float32[{shape}] = clip(%x) {LIMITS}
          %b: float32[{shape}] = abs(%x)
          %c: float32[{joined}] = concatenate(%a, %b) {{axis={axis}}}
          %d: float32[{joined}] = clip(%c) {LIMITS}
        }}
        """,
        reason,
    )


def test_declined_where_nothing_is_saved() -> None:
    check_declined(
        concat_as_view,
        f"""
        graph @g(%x: float32[1,8]) -> (%d) {{
          %c: float32[1,16] = concatenate(%x, %x) {{axis=1}}
          %d: float32[1,16] = clip(%c) {LIMITS}
        }}
        """,
        "no node computes %x",
    )


NESTED = f"""
graph @g(%x: float32[1,8], %y: float32[1,8]) -> (%d, %r) {{
  %a: float32[1,8] = clip(%x) {LIMITS}
  %b: float32[1,8] = abs(%a)
  %q: float32[2,4] = reshape(%y) {{shape=(2, 4)}}
  %p: float32[2,4] = abs(%q)
  %v: float32[1,8] = reshape(%p) {{shape=(1, 8)}}
  %c: float32[1,16] = concatenate(%a, %b) {{axis=1}}
  %e: float32[1,24] = concatenate(%c, %v) {{axis=1}}
  %d: float32[1,24] = clip(%e) {LIMITS}
  %r: float32[1,16] = abs(%c)
}}
"""


@pytest.mark.parametrize("io", ["arena", "caller"])
def test_nested_views_share_storage(io: str) -> None:
    graph = concat_as_view(parse(NESTED))
    views = Views(graph)
    values = {value.name: value for node in graph.nodes for value in node.outputs}
    places = {name: (views[values[name]].root.name, views[values[name]].offset) for name in "abpvce"}
    assert places == {
        "a": ("e", 0), "b": ("e", 32), "p": ("e", 64), "v": ("e", 64), "c": ("e", 0), "e": ("e", 0)
    }  # fmt: skip
    program = compile_graph(parse(NESTED), target.load("host"), Options(io=io))
    assert not any(layer.node.op.name.startswith("conc") for layer in program.layers)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.differences


def test_a_view_of_inputs_is_refused() -> None:
    graph = parse("""
    graph @g(%x: float32[1,8]) -> (%c) {
      %c: float32[1,16] = concatenate_view(%x, %x) {axis=1}
    }
    """)
    with pytest.raises(GraphError, match="no node computes %x"):
        Views(graph)
