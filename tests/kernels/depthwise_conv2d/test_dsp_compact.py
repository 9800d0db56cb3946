"""The depthwise convolution that all layers share, on simulated cores with DSP instructions, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.depthwise_conv2d.dsp_compact import DepthwiseConv2DCompactDsp
from microfold.kernels.kernel import KERNELS
from microfold.options import Options
from microfold.program import Program
from microfold.verification import verify
from tests.codegen.test_warnings import check_core
from tests.kernels import graphs
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

SAME3 = ((1, 1), (1, 1))
RELU_OUT = graphs.int8_element(0.05, -128)

CASES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((9, 7, 8), {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT}),
    ((5, 8, 5), {"padding": SAME3, "activation": graphs.RELU6}),
    ((12, 11, 6), {"padding": ((0, 1), (0, 1)), "strides": (2, 2)}),
    ((5, 13, 1), {"strides": (1, 3)}),
    ((8, 8, 16), {"padding": SAME3, "saturated": True, "out": graphs.int8_element(2.0, 7)}),
    ((9, 10, 7), {"dilations": (2, 2), "padding": ((2, 2), (2, 2))}),
    ((9, 11, 3), {"dilations": (1, 3), "batch": 3}),
    ((5, 9, 4), {"kernel": (1, 1), "strides": (2, 2), "padding": ((0, 1), (1, 0))}),
    ((9, 11, 4), {"kernel": (5, 5), "padding": ((1, 2), (2, 1)), "strides": (2, 2)}),
    ((12, 1, 10), {"kernel": (7, 1)}),
    ((1, 14, 6), {"kernel": (1, 7), "padding": ((0, 0), (3, 3))}),
    ((13, 7, 4), {"kernel": (10, 4), "padding": ((4, 5), (1, 2))}),
    ((18, 1, 8), {"kernel": (15, 1), "bias": False}),
    ((4, 5, 2), {"kernel": (4, 5)}),
    ((1, 3, 5), {"padding": SAME3, "per_channel": False}),
    ((14, 5, 6), {"kernel": (3, 1), "padding": ((1, 1), (0, 0)), "strides": (2, 1), "batch": 2}),
    ((3, 4, 5), {"kernel": (5, 6), "padding": ((2, 2), (3, 2))}),
]
GENERAL: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((6, 6, 5), {"padding": SAME3, "out": graphs.int8_element(0.00002, 0)}),
    ((3, 1, 2), {"kernel": (1, 1), "out": graphs.int8_element(0.00002, 0)}),
]


@pytest.fixture(autouse=True)
def only_compact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single layers would mostly be computed by smaller kernels."""
    kernels = [kernel for kernel in KERNELS if isinstance(kernel, DepthwiseConv2DCompactDsp)]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", kernels)


def _graph(cases: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> Graph:
    return merge([graphs.depthwise_conv2d_graph(*a, seed=i, **o) for i, (a, o) in enumerate(cases)])


def _compiled(graph: Graph, core: str = "cortex-m4", *flags: str) -> Program:
    chosen = target.load(core)
    chosen = replace(chosen, cpu_flags=(*chosen.cpu_flags, *flags))
    return compile_graph(graph, chosen, Options(optimize="size"))


@pytest.mark.parametrize(("cases", "general"), [(CASES, False), (GENERAL, True)])
def test_layers_share_one_function(
    cases: list[tuple[tuple[Any, ...], dict[str, Any]]], general: bool
) -> None:
    program = _compiled(_graph(cases))
    assert {layer.call.function.spec for layer in program.layers} == {(("general", general),)}


def test_compilers_are_silent(tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc", "clang")
    check_core([_compiled(_graph([*CASES, *GENERAL]))], "cortex-m4", tmp_path)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize(
    "core_and_flags", sampled([("cortex-m4",), ("cortex-m33", "-DMF_NO_ASM")], 2), ids=" ".join
)
def test_equals_reference(core_and_flags: tuple[str, ...]) -> None:
    need_tools(*CROSS_TOOLS)
    program = _compiled(_graph([*CASES, *GENERAL]), *core_and_flags)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference


def test_growing_images_are_refused() -> None:
    graph = graphs.depthwise_conv2d_graph(3, 4, 5, padding=((3, 2), (2, 4)))
    with pytest.raises(Exception, match="must be computable in place"):
        _compiled(graph)
