from __future__ import annotations

import pytest

from microfold import target as targets
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.ir.text import parse
from microfold.options import Options
from microfold.passes.context import Decision, PassContext
from microfold.transform.layout.io_layout import IoLayout
from microfold.transform.layout.optimize_layout_transform import optimize_layout_transform
from microfold.transform.layout.propagation.cost import movement_cost

TO_NCHW, TO_NHWC = "{permutation=(0, 3, 1, 2)}", "{permutation=(0, 2, 3, 1)}"
POOL = "size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))"

# What a model exported from an NCHW framework looks like.
MODEL = f"""graph @g(%x: float32[1,3,8,8], %v: float32[1,7]) -> (%y, %v) {{
  %c = constant float32[3,1,1] [1.0, 2.0, 3.0]
  %m: float32[1,3,8,8] = mul(%x, %c)
  %t: float32[1,8,8,3] = transpose(%m) {TO_NHWC}
  %p: float32[1,4,4,3] = max_pool2d(%t) {{{POOL}}}
  %u: float32[1,3,4,4] = transpose(%p) {TO_NCHW}
  %y: float32[1,3,4,4] = logistic(%u)
}}"""


def shapes(text: str, layout: str) -> tuple[list[tuple[int, ...]], list[Decision]]:
    """Shapes of inputs and outputs, and what was decided."""
    decisions: list[Decision] = []
    result = IoLayout(layout)(parse(text), PassContext(sink=decisions.append))
    return [value.type.shape for value in (*result.inputs, *result.outputs)], decisions


def test_both_ends() -> None:
    found, decisions = shapes(MODEL, "NHWC")
    assert found == [(1, 8, 8, 3), (1, 7), (1, 4, 4, 3), (1, 7)]
    assert [d.where for d in decisions if d.fired] == ["input %x", "output %y"]
    assert decisions[0].reason == "the model has it in NCHW, the caller in NHWC"


def test_no_transpose_is_left() -> None:
    graph = parse(MODEL)
    assert movement_cost(optimize_layout_transform(graph))[2] == 2
    assert movement_cost(optimize_layout_transform(IoLayout("NHWC")(graph)))[2] == 0


def test_its_own_layout_and_none() -> None:
    graph = parse(MODEL)
    assert IoLayout("NCHW")(graph) is graph
    assert IoLayout()(graph) is graph


def test_a_model_in_nhwc() -> None:
    text = f"""graph @g(%x: float32[1,8,8,3]) -> (%y) {{
      %y: float32[1,4,4,3] = max_pool2d(%x) {{{POOL}}}
    }}"""
    assert shapes(text, "NCHW")[0] == [(1, 3, 8, 8), (1, 3, 4, 4)]
    assert shapes(text, "NHWC")[0] == [(1, 8, 8, 3), (1, 4, 4, 3)]


def test_one_channel_makes_the_transpose_a_reshape() -> None:
    text = f"""graph @g(%x: float32[1,1,8,8]) -> (%y) {{
      %r: float32[1,8,8,1] = reshape(%x) {{shape=(1, 8, 8, 1)}}
      %y: float32[1,4,4,1] = max_pool2d(%r) {{{POOL}}}
    }}"""
    assert shapes(text, "NHWC")[0] == [(1, 8, 8, 1), (1, 4, 4, 1)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("%y: float32[1,3,8,8] = logistic(%x)", "its own layout is not clear: none detected"),
        (
            f"""%t: float32[1,8,8,3] = transpose(%x) {TO_NHWC}
            %p: float32[1,4,4,3] = max_pool2d(%t) {{{POOL}}}
            %q: float32[1,1,4,8] = max_pool2d(%x) {{{POOL}}}
            %y: float32[1,48] = reshape(%p) {{shape=(1, 48)}}""",
            "its own layout is not clear: NCHW and NHWC detected",
        ),
    ],
)
def test_ends_that_stay(body: str, reason: str) -> None:
    text = f"graph @g(%x: float32[1,3,8,8]) -> (%y) {{ {body} }}"
    _, decisions = shapes(text, "NHWC")
    assert not any(d.fired for d in decisions)
    assert decisions[0].reason == reason


def test_an_input_that_is_an_output() -> None:
    graph = parse(f"""graph @g(%x: float32[1,8,8,3]) -> (%x, %y) {{
      %y: float32[1,4,4,3] = max_pool2d(%x) {{{POOL}}}
    }}""")
    result = IoLayout("NCHW")(graph)
    assert [value.type.shape for value in result.outputs] == [(1, 8, 8, 3), (1, 3, 4, 4)]


def test_programs_take_and_give_it() -> None:
    program = compile_graph(parse(MODEL), targets.load("host"), Options(io_layout="NHWC"))
    assert [buffer.type.shape for buffer in program.inputs] == [(1, 8, 8, 3), (1, 7)]
    assert program.outputs[0].type.shape == (1, 4, 4, 3)
    assert program.source.inputs[0].type.shape == (1, 8, 8, 3)


@pytest.mark.parametrize("layout", ["NHW", "NCHW4c", "nhwc", ""])
def test_no_such_layout(layout: str) -> None:
    with pytest.raises(InputError):
        IoLayout(layout)
    with pytest.raises(InputError, match="io_layout must be model, or the axes N, H, W and C"):
        Options(io_layout=layout)
