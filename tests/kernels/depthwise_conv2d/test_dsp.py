"""Depthwise convolution for cores with DSP instructions, on the simulated core, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microfold.compiler import compile_graph
from microfold.kernels.depthwise_conv2d.dsp import DepthwiseConv2DDsp
from microfold.kernels.depthwise_conv2d.dsp_taps import DepthwiseConv2DTapsDsp
from microfold.kernels.kernel import KERNELS
from microfold.options import Options
from tests.codegen.builds import STRICT, write_sources
from tests.codegen.test_warnings import silent
from tests.kernels import graphs
from tests.kernels.choice import prefer, without_biasless
from tests.kernels.cores import assert_chosen, assert_exact, check_all, compile_all, load
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS
from tests.sampling import quick, sampled

KERNEL = "s8_depthwise_conv2d__dsp_plane"
SAME3 = ((1, 1), (1, 1))
RELU_OUT = graphs.int8_element(0.05, -128)

pytestmark = pytest.mark.needs(*CROSS_TOOLS)

CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "3x3 same relu": ((9, 7, 8), {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT}),
    "3x3 no activation": ((6, 6, 12), {"padding": SAME3}),
    "3x3 relu6 other zero point": ((5, 8, 5), {"padding": SAME3, "activation": graphs.RELU6}),
    "3x3 stride 2": ((12, 11, 6), {"padding": ((0, 1), (0, 1)), "strides": (2, 2)}),
    "3x3 valid stride 1x3": ((5, 13, 4), {"strides": (1, 3)}),
    "3x3 saturated": ((8, 8, 16), {"padding": SAME3, "saturated": True, "out": graphs.int8_element(2.0, 7)}),
    "3x3 dilation 2": ((9, 10, 7), {"dilations": (2, 2), "padding": ((2, 2), (2, 2))}),
    "3x3 dilation 3x1": ((9, 5, 4), {"dilations": (3, 1)}),
    "1x1": ((5, 5, 9), {"kernel": (1, 1)}),
    "1x1 stride 2": ((5, 9, 4), {"kernel": (1, 1), "strides": (2, 2), "padding": ((0, 1), (1, 0))}),
    "5x5": ((10, 9, 5), {"kernel": (5, 5), "padding": ((2, 2), (2, 2))}),
    "5x5 stride 2": ((9, 11, 4), {"kernel": (5, 5), "padding": ((1, 2), (2, 1)), "strides": (2, 2)}),
    "2x2": ((6, 5, 4), {"kernel": (2, 2), "padding": ((0, 1), (0, 1))}),
    "7x1": ((12, 1, 10), {"kernel": (7, 1)}),
    "1x7": ((1, 14, 6), {"kernel": (1, 7), "padding": ((0, 0), (3, 3))}),
    "10x4": ((13, 7, 4), {"kernel": (10, 4), "padding": ((4, 5), (1, 2))}),
    "15x1, few outputs": ((18, 1, 8), {"kernel": (15, 1)}),
    "1 channel": ((7, 9, 1), {"padding": SAME3}),
    "2 channels": ((7, 6, 2), {"padding": SAME3}),
    "3 channels": ((6, 7, 3), {"padding": SAME3}),
    "1x3": ((5, 14, 5), {"kernel": (1, 3), "padding": ((0, 0), (1, 1))}),
    "3x1": ((14, 5, 6), {"kernel": (3, 1), "padding": ((1, 1), (0, 0)), "strides": (2, 1)}),
    "2x3 stride 2, relu": (
        (9, 19, 7),
        {"kernel": (2, 3), "strides": (1, 2), "activation": graphs.RELU, "out": RELU_OUT},
    ),
    "3x3 dilation 2x1": ((11, 9, 5), {"dilations": (2, 1), "padding": ((2, 2), (1, 1))}),
    "multiplier 8": (
        (20, 17, 1),
        {"kernel": (10, 8), "multiplier": 8, "strides": (2, 2), "padding": ((4, 5), (3, 3))},
    ),
    "multiplier 2": ((6, 5, 5), {"multiplier": 2, "padding": SAME3}),
    "batch 2": ((7, 5, 6), {"padding": SAME3, "batch": 2}),
    "batch 2, image grows": ((3, 4, 5), {"padding": ((3, 2), (2, 4)), "batch": 2}),
    "width 1": ((8, 1, 8), {"padding": SAME3}),
    "width 2": ((8, 2, 8), {"padding": SAME3}),
    "per tensor": ((6, 6, 8), {"padding": SAME3, "per_channel": False}),
    "no bias": ((6, 6, 8), {"padding": SAME3, "bias": False}),
    "multiplier above one": ((6, 6, 8), {"padding": SAME3, "out": graphs.int8_element(0.0004, 0)}),
    "large padding": ((2, 3, 4), {"padding": ((4, 4), (5, 4))}),
    "bands": ((40, 24, 4), {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT}),
    "bands, stride 2": ((40, 25, 4), {"padding": ((0, 1), (0, 1)), "strides": (2, 2)}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def only_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single layers would mostly be computed by code for their shape."""
    kernels = [k for k in KERNELS if isinstance(k, DepthwiseConv2DDsp | DepthwiseConv2DTapsDsp)]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", kernels)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m7", "cortex-m33"]))
def test_equals_the_reference(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel for single taps takes fewer cycles for some of them.
    kernels = [kernel for kernel in KERNELS if isinstance(kernel, DepthwiseConv2DDsp)]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", kernels)
    cases = [graphs.depthwise_conv2d_graph(*CASES[c][0], seed=len(c), **CASES[c][1]) for c in CASES]
    check_all(cases, core, {KERNEL}, runs=8)


@pytest.mark.slow
def test_without_assembly() -> None:
    names = ("3x3 same relu", "3x3 no activation", "3x3 stride 2", "3 channels")
    cases = {
        name: graphs.depthwise_conv2d_graph(*CASES[name][0], seed=len(name), **CASES[name][1])
        for name in names
    }
    program, layers = compile_all(cases, load("cortex-m4", "-DMF_NO_ASM"))
    assert_chosen(layers, KERNEL)
    assert_exact(program, 8)


@pytest.mark.slow
def test_records_without_biases() -> None:
    """Where lines have the steps: no correction of negative sums, or none of them."""
    names = ("3x3 same relu", "3x3 relu6 other zero point", "2x3 stride 2, relu")
    cases = {name: graphs.depthwise_conv2d_graph(*CASES[name][0], **CASES[name][1]) for name in names}
    wanted = {key: {"requantize": "biasless"} for key in names}
    program, layers = compile_all(cases, load("cortex-m4"), None, wanted)
    assert_chosen(layers, KERNEL, wanted)
    assert_exact(program, 8)


@pytest.mark.slow
def test_records_with_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    without_biasless(monkeypatch)
    names = ("3x3 same relu", "3x3 relu6 other zero point", "2x3 stride 2, relu")
    cases = {name: graphs.depthwise_conv2d_graph(*CASES[name][0], **CASES[name][1]) for name in names}
    wanted = {key: {"requantize": "short_relu"} for key in names}
    program, layers = compile_all(cases, load("cortex-m4"), None, wanted)
    assert_chosen(layers, KERNEL, wanted)
    assert_exact(program, 8)


CALLED_TWICE: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((30, 1, 40), {"kernel": (3, 1)}),
    ((28, 1, 128), {"kernel": (5, 1)}),
    ((15, 1, 128), {"kernel": (15, 1)}),
]
FEW_OUTPUTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "column": ((15, 1, 9), {"kernel": (15, 1)}),
    "whole image": ((4, 5, 8), {"kernel": (4, 5), "activation": graphs.RELU, "out": RELU_OUT}),
    "two by two, dilated": (
        (8, 9, 5),
        {"kernel": (3, 3), "dilations": (3, 2), "strides": (1, 4), "batch": 2},
    ),
    "saturated": ((3, 3, 4), {"saturated": True, "activation": graphs.RELU6}),
    "more than 128 taps": ((12, 12, 6), {"kernel": (12, 12)}),
}


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("optimize", ["balanced", "size"])
def test_few_outputs_equal_the_reference(optimize: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, DepthwiseConv2DTapsDsp.name)
    cases = [
        graphs.depthwise_conv2d_graph(*arguments, seed=len(case), **options)
        for case, (arguments, options) in FEW_OUTPUTS.items()
    ]
    cases.append(graphs.with_constant_channel(graphs.depthwise_conv2d_graph(4, 3, 7), 2))
    program = check_all(cases, "cortex-m4", {DepthwiseConv2DTapsDsp.name}, optimize=optimize, runs=8)
    forms = {dict(layer.call.function.spec)["requantize"] for layer in program.layers}
    assert "biasless" in forms
    # Two words suffice for sums of both signs, too.
    assert ("packed" in forms) == (optimize == "size") and ("short" in forms) == (optimize == "balanced")


@pytest.mark.parametrize("optimize", quick(["-O0", "-O2", "-Og", "-Os", "-O3"]))
def test_taps_compile_at_every_level(optimize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers find registers for the assembly, also where several layers share it."""
    prefer(monkeypatch, DepthwiseConv2DTapsDsp.name)
    cases = [graphs.depthwise_conv2d_graph(*a, seed=i, **o) for i, (a, o) in enumerate(CALLED_TWICE)]
    core = load("cortex-m4")
    program = compile_graph(merge(cases), core, Options(optimize="size"))
    assert {layer.kernel.name for layer in program.layers} == {DepthwiseConv2DTapsDsp.name}
    sources = write_sources(program, tmp_path)
    silent(["arm-none-eabi-gcc", *core.cpu_flags, *STRICT, optimize, "-c", *sources], tmp_path)
