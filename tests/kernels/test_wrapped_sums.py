"""Sums that leave 32 bits: the reference wraps them round, and so does the C."""

from __future__ import annotations

from textwrap import dedent

import pytest

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold import target
from microfold.analysis.ranges import analyze
from microfold.compiler import compile_graph
from microfold.ir.text import parse
from microfold.program import Program
from microfold.reporting.data import build_report
from tests.kernels.cores import assert_exact, compile_all
from tests.needs import need_tools

ATTRIBUTES = "strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1))"
BIAS = "constant int32[2] [2147483647, -2147483000]"
# Results spread over the whole output range, so that what wraps is seen.
GRAPHS = {
    "conv2d": f"""\
        graph @g(%x: int8[1,4,4,2] q(1.0, -3)) -> (%y) {{
          %w = constant int8[2,1,1,2] q(1.0, 0) [127, 100, -128, 5]
          %b = {BIAS}
          %y: int8[1,6,6,2] q(2e7, 4) = conv2d(%x, %w, %b) {{{ATTRIBUTES}}}
        }}
        """,
    "depthwise_conv2d": f"""\
        graph @g(%x: int8[1,4,4,2] q(1.0, -3)) -> (%y) {{
          %w = constant int8[1,1,1,2] q(1.0, 0) [127, -128]
          %b = {BIAS}
          %y: int8[1,6,6,2] q(2e7, 4) = depthwise_conv2d(%x, %w, %b) {{{ATTRIBUTES}}}
        }}
        """,
    "fully_connected": f"""\
        graph @g(%x: int8[3,2] q(1.0, -3)) -> (%y) {{
          %w = constant int8[2,2] q(1.0, 0) [127, 100, -128, 5]
          %b = {BIAS}
          %y: int8[3,2] q(2e7, 4) = fully_connected(%x, %w, %b)
        }}
        """,
    "int16": f"""\
        graph @g(%x: int16[3,2] q(1.0, 0)) -> (%y) {{
          %w = constant int8[2,2] q(1.0, 0) [127, 100, -128, 5]
          %b = {BIAS}
          %y: int16[3,2] q(8e4, 0) = fully_connected(%x, %w, %b)
        }}
        """,
}


def build(name: str, core: str) -> Program:
    return compile_graph(parse(dedent(GRAPHS[name])), target.load(core))


@pytest.mark.always
@pytest.mark.parametrize("core", ["host", pytest.param("cortex-m4", marks=pytest.mark.slow)])
def test_it_wraps_like_the_reference(core: str) -> None:
    if core != "host":
        need_tools("arm-none-eabi-gcc", "qemu-system-arm")
    graphs = {name: parse(dedent(text)) for name, text in GRAPHS.items()}
    assert_exact(compile_all(graphs, target.load(core))[0], 6)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_report_says_so(name: str) -> None:
    program = build(name, "host")
    proof = build_report(program, None).accumulators
    assert not proof.proved
    assert proof.unproved_layers == proof.wrapping_layers == (program.layers[0].name,)
    assert proof.largest > proof.limit == 1 << 31


def test_nothing_is_claimed_about_outputs_that_may_wrap() -> None:
    graph = parse(dedent(GRAPHS["conv2d"]))
    assert analyze(graph).values[graph.outputs[0]].hull == (-128, 127)
    assert not analyze(graph).unsaturated
