"""Checks of the kernels for cores without SIMD instructions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.types import Array
from microfold.program import Program
from microfold.simulate.program import simulator
from microfold.verification import verify
from tests.kernels.choice import avoid
from tests.kernels.cores import KEEP_OPERATORS
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools

CORES = {"cortex-m3": "thumb2", "cortex-m0plus": "thumb1"}


def check(
    graphs: Sequence[Graph], core: str, monkeypatch: pytest.MonkeyPatch, *, assembly: bool = True
) -> Program:
    """All graphs in one firmware, by the core's own kernels wherever they can, against the reference."""
    need_tools(*CROSS_TOOLS)
    avoid(monkeypatch, lambda kernel: "__c" in kernel.name)
    loaded = target.load(core)
    if not assembly:
        loaded = replace(loaded, cpu_flags=(*loaded.cpu_flags, "-DMF_NO_ASM"))
    program = compile_graph(merge(list(graphs)), loaded, context=KEEP_OPERATORS)
    assert all(CORES[core] in layer.kernel.name for layer in program.layers)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference
    return program


def layer_instructions(program: Program, calls: Sequence[Sequence[Array]]) -> list[tuple[int, ...]]:
    """Those of each call, by the one image that counts them."""
    with simulator(program) as machine:
        return [call.layer_instructions for call in machine.firmware(hooked=True).run(calls)]


def layer_costs(program: Program, calls: Sequence[Sequence[Array]]) -> list[tuple[int, ...]]:
    """What selection compares of each call: cycles."""
    model = program.target.cycle_model
    assert model is not None
    with simulator(program) as machine:
        traces = machine.firmware(hooked=True).trace(calls, model)
    return [trace.cycles[: len(program.layers)] for trace in traces]


def measured(program: Program) -> list[tuple[str, float, float]]:
    """Name, estimated and counted instructions of each layer."""
    (counted,) = layer_instructions(program, verify.input_sets([b.type for b in program.inputs], 1))
    return [
        (layer.kernel.name, layer.estimated_instructions or 0, count)
        for layer, count in zip(program.layers, counted, strict=True)
    ]
