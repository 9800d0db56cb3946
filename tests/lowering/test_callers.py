"""Estimates of layers that share functions, and of those that do not."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.kernels.layer import LayerContext
from microfold.options import Options
from microfold.program import Program
from tests.kernels import graphs
from tests.kernels.portable import as_int16
from tests.kernels.random_networks import merge

SAME = ((1, 1), (1, 1))


def build(*channels: int, optimize: str = "balanced") -> Program:
    """Convolutions of int16 beside each other, each of another image of so many channels."""
    convolutions = [as_int16(graphs.conv2d_graph(8, 8, each, 8, (3, 3), padding=SAME)) for each in channels]
    return compile_graph(merge(convolutions), target.load("cortex-m7"), Options(optimize=optimize))


@pytest.mark.parametrize(
    ("channels", "optimize", "shared"),
    [((8,), "balanced", 0), ((8, 8), "balanced", 2), ((1, 8), "balanced", 0), ((8, 8), "speed", 0)],
)
def test_functions_of_only_layers_take_less(channels: tuple[int, ...], optimize: str, shared: int) -> None:
    program = build(*channels, optimize=optimize)
    functions = [layer.call.function for layer in program.layers]
    assert sum(functions.count(function) > 1 for function in functions) == shared
    for each in program.layers:
        layer = LayerContext(each.node, program.graph.constants, program.target)
        cycles, alone = each.kernel.cycles(layer), each.kernel.single_caller_cycles(layer)
        assert alone < cycles
        assert each.estimated_cycles == round(cycles if shared else alone)
