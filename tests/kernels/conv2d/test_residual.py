"""Convolutions that add a second tensor to their outputs, on every core, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, make_node
from microfold.ir.types import ElementType
from microfold.kernels.conv2d.dsp import Conv2DDsp
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection import candidates
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.pipeline import optimize
from microfold.target import Target
from tests.codegen.test_sanitizers import check as check_with_sanitizers
from tests.kernels import graphs
from tests.kernels.conv2d.residual_networks import random_residual_network
from tests.kernels.cores import assert_chosen, assert_exact, compile_all, load
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_sanitizers, need_tools
from tests.sampling import sampled
from tests.transform.arenas import Counted

SAME3 = ((1, 1), (1, 1))
POINT = {"kernel": (1, 1)}
RELU_OUT = graphs.int8_element(0.05, -128)

# Image, filters, the convolution's choices.
CASES: Mapping[str, tuple[tuple[int, int, int, int], Mapping[str, Any]]] = {
    "3x3": ((6, 16, 8, 6), {"padding": SAME3}),
    "3x3 relu": ((5, 11, 4, 7), {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT}),
    "3x3 relu6": ((5, 9, 12, 5), {"padding": SAME3, "activation": graphs.RELU6}),
    "3x3 of 3 channels": ((5, 7, 3, 8), {"padding": SAME3}),
    "3x3 stride 2": ((9, 17, 4, 6), {"padding": ((0, 1), (0, 1)), "strides": (2, 2)}),
    "dilated": ((9, 12, 4, 6), {"dilations": (2, 2), "padding": ((2, 2), (2, 2))}),
    "batch 2": ((3, 3, 4, 5), {"padding": SAME3, "batch": 2}),
    "1 filter": ((4, 5, 4, 1), {"padding": SAME3}),
    "1x1": ((4, 6, 16, 8), POINT),
    "1x1, 1 pixel left": ((3, 3, 8, 6), POINT),
    "1x1, 2 pixels left, odd": ((2, 3, 7, 5), {**POINT, "activation": graphs.RELU6}),
    "1x1, 3 pixels left": ((3, 5, 40, 24), POINT),
    "1x1, 3 pixels": ((1, 3, 8, 6), POINT),
    "1x1, 1 pixel": ((1, 1, 33, 9), POINT),
    "1x1, 1 filter": ((4, 5, 6, 1), POINT),
    "saturated": ((5, 8, 16, 6), {"saturated": True, "out": graphs.int8_element(4.0, 7)}),
}  # fmt: skip


def residual_graph(
    image: tuple[int, int, int, int],
    choices: Mapping[str, Any],
    *,
    scale: float = 0.07,
    zero_point: int = -11,
    out: ElementType | None = None,
    activation: Clip | None = None,
) -> Graph:
    """A convolution, and the sum of its result and a second input of a scale of its own."""
    graph = graphs.conv2d_graph(*image, **choices)
    (node,) = graph.nodes
    residual = graphs.int8_input("residual", node.output.type.shape, scale, zero_point)
    steps = [*node.epilogue, EpilogueStep(Add(out or graphs.int8_element(0.09, 4)), (residual,))]
    steps += [EpilogueStep(activation)] if activation is not None else []
    new = make_node(node.op, node.inputs, ["model/layer/sum"], steps)
    return replace(graph, inputs=(*graph.inputs, residual), nodes=(new,), outputs=new.outputs)


def all_graphs() -> dict[str, Graph]:
    """Each case, with sums that are clipped and not, and scales for which no linear form is exact."""
    found: dict[str, Graph] = {}
    for index, (name, (image, choices)) in enumerate(CASES.items()):
        activation = (None, graphs.RELU, graphs.RELU6)[index % 3]
        found[name] = residual_graph(image, choices, activation=activation)
    image, choices = CASES["3x3"]
    found["steps"] = residual_graph(image, choices, scale=0.0513, out=graphs.int8_element(0.0007, 3))
    found["narrow"] = residual_graph(image, choices, scale=0.5, out=graphs.int8_element(2.0, -128))
    return found


@pytest.mark.parametrize("optimize", ["balanced", "speed", "size"])
def test_host(optimize: str) -> None:
    program, layers = compile_all(all_graphs(), load("host"), Options(optimize=optimize))
    assert_chosen(layers, "s8_conv2d__c_2x2_residual")
    assert_exact(program, 8)


def check(monkeypatch: pytest.MonkeyPatch, core: Target, kernel: str, optimize: str, cases: int) -> None:
    """All cases that a kernel computes, of which there are so many."""
    need_tools(*CROSS_TOOLS)
    only = [each for each in KERNELS if each.name == kernel or not each.name.endswith("_residual")]
    monkeypatch.setattr(candidates, "KERNELS", only)
    (wanted,) = (each for each in KERNELS if each.name == kernel)
    fitting = {
        name: graph
        for name, graph in all_graphs().items()
        if wanted.supports(LayerContext(graph.nodes[0], graph.constants, core)) is None
    }
    assert len(fitting) == cases
    program, layers = compile_all(fitting, core, Options(optimize=optimize))
    assert_chosen(layers, kernel)
    # Results that lie where the residual does: it is read before.
    assert sum(layer.outputs[0].offset == layer.inputs[1].offset for layer in program.layers) >= cases // 3
    assert_exact(program, 6)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("optimize", sampled(["balanced", "size"], 2))
@pytest.mark.parametrize(
    ("core", "kernel", "cases"),
    [
        ("cortex-m0plus", "s8_conv2d__c_2x2_residual", 18),
        ("cortex-m0plus", "s8_conv2d__thumb1_4x1_residual", 18),
        ("cortex-m3", "s8_conv2d__thumb2_4x1_residual", 18),
        ("cortex-m4", "s8_conv2d__dsp_4x2_residual", 18),
        ("cortex-m7", "s8_conv2d__dsp_4x2_residual", 18),
        ("cortex-m4", "s8_conv2d__dsp_tile_residual", 8),
        ("cortex-m7", "s8_conv2d__dsp_tile_residual", 8),
        ("cortex-m55", "s8_conv2d__mve_2x4_residual", 18),
    ],
)
def test_cores(monkeypatch: pytest.MonkeyPatch, core: str, kernel: str, cases: int, optimize: str) -> None:
    check(monkeypatch, load(core), kernel, optimize, cases)


@pytest.mark.parametrize(
    ("kernel", "case", "terms"),
    [
        ("s8_conv2d__dsp_4x2_residual", "1x1, 3 pixels left", {"block": 4, "rest": 0}),
        ("s8_conv2d__dsp_4x2_residual", "3x3 relu", {"block": 16, "rest": 13 * 4 + 3 * 7}),
        ("s8_conv2d__dsp_tile_residual", "3x3 relu", {"block": 25, "rest": 10 * 4 + 15 * 7}),
        ("s8_conv2d__thumb2_4x1_residual", "1 filter", {"block": 5, "rest": 20}),
    ],
)
def test_blocks(kernel: str, case: str, terms: Mapping[str, int]) -> None:
    """Sums are made of so many blocks, with so many elements behind their groups of eight."""
    (wanted,) = (each for each in KERNELS if each.name == kernel)
    graph = residual_graph(CASES[case][0], CASES[case][1])
    core = load("cortex-m4")
    layer = LayerContext(graph.nodes[0], graph.constants, core)
    variant = wanted.variants(layer)[0]
    assert variant.terms(layer) == terms


@pytest.mark.slow
def test_one_pixel_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variant with the least scratch."""
    variants = Conv2DDsp.variants

    def single(self: Conv2DDsp, layer: LayerContext) -> list[Kernel]:
        return [each for each in variants(self, layer) if isinstance(each, Conv2DDsp) and each.group == 1]

    monkeypatch.setattr(Conv2DDsp, "variants", single)
    check(monkeypatch, load("cortex-m4"), "s8_conv2d__dsp_4x2_residual", "balanced", 18)


@pytest.mark.slow
def test_without_assembly(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch, load("cortex-m33", "-DMF_NO_ASM"), "s8_conv2d__dsp_tile_residual", "balanced", 8)


def fused_networks(first: int, count: int) -> Graph:
    """Random networks in which every sum that may goes into a convolution."""
    found = merge([random_residual_network(seed) for seed in range(first, first + count)], first)
    graph = optimize(found, PassContext(arenas=Counted()))
    assert sum(len(step.operands) for node in graph.nodes for step in node.epilogue) > count // 2
    return graph


def check_networks(graph: Graph, core: str, options: Options | None = None) -> None:
    program = compile_graph(
        graph, target.load(core), options, context=PassContext(disabled_pass=("fuse_residual",))
    )
    assert any(layer.kernel.name.endswith("_residual") for layer in program.layers)
    assert_exact(program, 6)


@pytest.mark.usefixtures("optimized_host_code")
@pytest.mark.parametrize("seed", sampled(range(1000, 1400, 100), 4))
def test_random_networks(seed: int) -> None:
    for optimize_for, io in (("balanced", "arena"), ("speed", "caller")):
        check_networks(fused_networks(seed, 24), "host", Options(optimize=optimize_for, io=io))


@pytest.mark.slow
@pytest.mark.parametrize(
    "core", sampled(["cortex-m4", "cortex-m0plus", "cortex-m3", "cortex-m55", "cortex-m7"], 3)
)
def test_random_networks_on_cores(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    check_networks(fused_networks(2000, 20), core)


@pytest.mark.slow
def test_sanitizers(tmp_path: Path) -> None:
    need_sanitizers("gcc")
    program = compile_graph(fused_networks(3000, 24), target.load("host"))
    check_with_sanitizers([program], "gcc", tmp_path)
