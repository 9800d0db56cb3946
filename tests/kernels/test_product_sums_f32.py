"""float32 product sums for floating-point units and float vectors, on the simulated cores."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.options import Options
from microfold.simulate.program import simulator
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import assert_exact, compile_all, load
from tests.kernels.portable import as_float
from tests.needs import CROSS_TOOLS, need_tools

SAME3 = ((1, 1), (1, 1))
FPU = {
    "conv": "f32_conv2d__fpu_4x4",
    "depthwise": "f32_depthwise_conv2d__fpu_4x4",
    "dense": "f32_fully_connected__fpu_4",
}
MVE = {
    "conv": "f32_conv2d__mve_4x4",
    "depthwise": "f32_depthwise_conv2d__mve_4x4",
    "dense": "f32_fully_connected__mve_16",
}

GRAPHS: dict[str, Graph] = {
    "conv 3x3, relu": graphs.conv2d_graph(6, 7, 4, 8, padding=SAME3, activation=graphs.RELU),
    "conv odd channels, batch 2": graphs.conv2d_graph(
        3, 5, 3, 5, padding=((0, 1), (1, 0)), strides=(2, 1), batch=2, activation=graphs.RELU6
    ),
    "conv one product": graphs.conv2d_graph(2, 3, 1, 4, (1, 1)),
    "conv few channels": graphs.conv2d_graph(5, 3, 2, 3, (2, 1), activation=graphs.RELU),
    "conv dilated, no bias": graphs.conv2d_graph(
        9, 9, 3, 4, dilations=(3, 2), padding=((3, 3), (2, 2)), bias=False
    ),
    "conv 1x1, odd": graphs.conv2d_graph(3, 5, 13, 7, (1, 1), batch=3, activation=graphs.Clip(-1.0, 1.0)),
    "depthwise 3x3, relu": graphs.depthwise_conv2d_graph(6, 7, 8, padding=SAME3, activation=graphs.RELU),
    "depthwise odd, strides, batch 2": graphs.depthwise_conv2d_graph(
        7, 6, 3, padding=((0, 1), (0, 1)), strides=(2, 2), batch=2, activation=graphs.RELU6
    ),
    "depthwise 5x5": graphs.depthwise_conv2d_graph(7, 9, 5, (5, 5), padding=((2, 2), (2, 2)), bias=False),
    "depthwise dilated": graphs.depthwise_conv2d_graph(
        9, 11, 3, dilations=(2, 3), padding=((2, 2), (3, 3)), activation=graphs.Clip(-1.0, 1.0)
    ),
    "depthwise one row": graphs.depthwise_conv2d_graph(1, 13, 4, (1, 3), padding=((0, 0), (1, 1))),
    "depthwise two columns": graphs.depthwise_conv2d_graph(5, 8, 5, (3, 2), strides=(1, 2)),
    "depthwise column": graphs.depthwise_conv2d_graph(15, 1, 5, (5, 1), padding=((2, 2), (0, 0))),
    "depthwise growing": graphs.depthwise_conv2d_graph(2, 2, 3, padding=((2, 2), (2, 2)), batch=2),
    "depthwise rows unread": graphs.depthwise_conv2d_graph(8, 8, 4, (2, 2), strides=(3, 3)),
    "dense relu": graphs.fully_connected_graph(45, 38, activation=graphs.RELU),
    "dense odd, batch 3": graphs.fully_connected_graph(13, 7, batch=3, activation=graphs.RELU6, bias=False),
}


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize(
    ("core", "flags"),
    [
        ("cortex-m4", ()),
        ("cortex-m7", ()),
        ("cortex-m55", ()),
        ("cortex-m55", ("-DMF_NO_ASM",)),
        ("cortex-m55", ("-Os", "-fno-omit-frame-pointer")),
    ],
)
def test_equals_reference(core: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {name: as_float(graph) for name, graph in GRAPHS.items()}
    kernels = MVE if core == "cortex-m55" else FPU
    prefer(monkeypatch, *kernels.values())
    program, layers = compile_all(cases, load(core, *flags), Options(optimize="speed"))
    for name, layer in layers.items():
        assert layer.kernel.name == kernels[name.split()[0]], name
    assert_exact(program, 5)


@pytest.mark.slow
def test_fully_connected_gives_the_bits_of_the_reference() -> None:
    """Where terms cancel, another order, or products that are not rounded, would give other digits."""
    need_tools(*CROSS_TOOLS)
    graph = as_float(graphs.fully_connected_graph(67, 9))
    program = compile_graph(graph, target.load("cortex-m4"))
    x = np.random.default_rng(0).normal(0, 1, (1, 67)).astype(np.float32)
    with simulator(program) as machine:
        (result,) = machine.run([(x,)]).outputs[0]
    (expected,) = Interpreter(graph).run(x)
    assert result.tobytes() == expected.tobytes()


def test_depthwise_layers_compute_over_their_dying_input() -> None:
    program = compile_graph(
        as_float(graphs.depthwise_conv2d_graph(12, 12, 16, padding=SAME3)),
        target.load("cortex-m4"),
        Options(optimize="speed"),
    )
    # Three rows of 14 columns and four channels.
    assert program.arena.size <= 4 * (12 * 12 * 16 + 3 * 14 * 4)


def test_many_outputs_per_channel_are_left_to_portable_c() -> None:
    graph = as_float(graphs.depthwise_conv2d_graph(4, 4, 2, multiplier=3))
    program = compile_graph(graph, target.load("cortex-m4"))
    assert program.layers[0].kernel.name == "f32_depthwise_conv2d__c_plane"
