"""Checks of one-node graphs on simulated cores."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from microfold import target, verify
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.kernel import KERNELS, Site
from microfold.options import Options
from microfold.program import Program
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools


def check(graph: Graph, core: str, kernel: str, *, optimize: str = "balanced", runs: int = 6) -> Program:
    """Compiles for the core, which must choose the kernel, and compares every tensor with the reference."""
    need_tools(*CROSS_TOOLS)
    program = compile_graph(graph, target.load(core), Options(optimize=optimize))
    assert program.layers[0].kernel.name == kernel
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], runs))
    assert result.exact, result.first_difference
    return program


def check_all(
    graphs: Sequence[Graph], core: str, kernels: set[str], *, optimize: str = "balanced", runs: int = 6
) -> Program:
    """All graphs in one firmware: selection must choose these kernels, all of them, and no others."""
    need_tools(*CROSS_TOOLS)
    program = compile_graph(merge(list(graphs)), target.load(core), Options(optimize=optimize))
    chosen = {layer.kernel.name for layer in program.layers}
    assert chosen == kernels, chosen ^ kernels
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], runs))
    assert result.exact, result.first_difference
    return program


def prefer(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Lets selection choose these kernels wherever they fit."""
    for kernel in KERNELS:
        if kernel.name in names:
            monkeypatch.setattr(kernel, "cost", _nothing)


def _nothing(site: Site) -> float:
    del site
    return 0.0
