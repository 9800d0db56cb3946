"""float32 convolutions that add a second tensor to their outputs, on every core that has kernels for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, make_node
from microfold.ir.types import ElementType
from microfold.kernels.kernel import KERNELS
from microfold.kernels.layer import LayerContext
from microfold.kernels.loading import load_kernels
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.choice import prefer
from tests.kernels.cores import assert_exact, compile_all, load
from tests.kernels.portable import as_float
from tests.needs import CROSS_TOOLS

SAME3 = ((1, 1), (1, 1))
CONVOLUTIONS: dict[str, tuple[Graph, Clip | None]] = {
    "3x3, relu": (graphs.conv2d_graph(6, 7, 4, 8, padding=SAME3), graphs.RELU),
    "3x3, no clip": (graphs.conv2d_graph(5, 4, 3, 8, padding=SAME3), None),
    "odd channels, batch 2": (
        graphs.conv2d_graph(3, 5, 3, 5, padding=((0, 1), (1, 0)), strides=(2, 1), batch=2),
        graphs.RELU6,
    ),
    "1x1, odd": (graphs.conv2d_graph(3, 5, 13, 7, (1, 1), batch=3), graphs.Clip(-1.0, 1.0)),
    "1x1, no bias": (graphs.conv2d_graph(3, 3, 8, 4, (1, 1), bias=False), None),
}


def residual_graph(graph: Graph, *clips: Clip, own: Clip | None = None, of_input: bool = False) -> Graph:
    """Return a float32 convolution with a sum and clips in its epilogue.

    Args:
        own: clips the convolution's result in front of the sum.
        of_input: the residual is the convolution's input, over which the sum must not lie.
    """
    graph = as_float(graph)
    (node,) = graph.nodes
    (x,) = graph.inputs
    residual = x if of_input else graphs.float_input("residual", node.output.type.shape)
    total = EpilogueStep(Add(ElementType(node.output.type.dtype)), (residual,))
    steps = [*([EpilogueStep(own)] if own else []), total, *map(EpilogueStep, clips)]
    new = make_node(node.op, node.inputs, ["sum"], steps)
    inputs = tuple(dict.fromkeys((x, residual)))
    return replace(graph, inputs=inputs, nodes=(new,), outputs=new.outputs)


def all_graphs() -> dict[str, Graph]:
    """Return all cases, and one whose residual has to be copied."""
    found = {
        name: residual_graph(graph, *([clip] if clip else [])) for name, (graph, clip) in CONVOLUTIONS.items()
    }
    same = graphs.conv2d_graph(5, 6, 8, 8, (1, 1))
    found["of the input"] = residual_graph(same, graphs.RELU, of_input=True)
    return found


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize(
    ("core", "kernel", "optimize", "flags"),
    [
        ("cortex-m4", "f32_conv2d__fpu_4x4_residual", "speed", ()),
        ("cortex-m7", "f32_conv2d__fpu_4x4_residual", "speed", ("-DMF_NO_ASM",)),
        ("cortex-m4", "f32_f16w_conv2d__fpu_4x4_residual", "balanced", ()),
        ("cortex-m55", "f32_conv2d__mve_4x4_residual", "speed", ()),
        ("cortex-m55", "f32_f16w_conv2d__mve_4x4_residual", "balanced", ("-fno-omit-frame-pointer",)),
    ],
)
def test_cores(
    core: str, kernel: str, optimize: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, kernel)
    program, layers = compile_all(all_graphs(), load(core, *flags), Options(optimize=optimize))
    assert {layer.kernel.name for layer in layers.values()} == {kernel}
    over = {name for name, layer in layers.items() if layer.outputs[0].offset == layer.inputs[1].offset}
    assert over == {*CONVOLUTIONS}, "results lie where residuals do that nothing else reads"
    assert_exact(program, 4)


def test_clips_in_front_of_the_sum_are_refused() -> None:
    graph = residual_graph(CONVOLUTIONS["3x3, relu"][0], own=graphs.RELU)
    layer = LayerContext(graph.nodes[0], graph.constants, target.load("cortex-m4"))
    load_kernels(Conv2D)
    (kernel,) = (each for each in KERNELS if each.name == "f32_conv2d__fpu_4x4_residual")
    assert kernel.supports(layer) == "it clamps sums after the addition of the residual, not before"
