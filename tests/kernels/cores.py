"""Checks of one-node graphs on simulated cores."""

from __future__ import annotations

from microfold import target, verify
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.options import Options
from microfold.program import Program
from tests.needs import CROSS_TOOLS, need_tools


def check(graph: Graph, core: str, kernel: str, *, optimize: str = "balanced", runs: int = 6) -> Program:
    """Compiles for the core, which must choose the kernel, and compares every tensor with the reference."""
    need_tools(*CROSS_TOOLS)
    program = compile_graph(graph, target.load(core), Options(optimize=optimize))
    assert program.layers[0].kernel.name == kernel
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], runs))
    assert result.exact, result.first_difference
    return program
