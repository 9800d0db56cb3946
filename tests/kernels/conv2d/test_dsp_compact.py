"""The convolution that all layers share, on simulated cores with DSP instructions, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.kernels.conv2d.dsp_compact import Conv2DCompactDsp, Conv2DCompactPackedDsp
from microfold.kernels.fully_connected.dsp_compact import (
    FullyConnectedCompactDsp,
    FullyConnectedCompactPackedDsp,
)
from microfold.kernels.kernel import KERNELS
from microfold.options import Options
from microfold.program import Program
from microfold.verification import verify
from tests.codegen.test_warnings import check_core
from tests.kernels import graphs
from tests.kernels.choice import layer_of, prefer
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

SAME3 = ((1, 1), (1, 1))
RELU_OUT = graphs.int8_element(0.05, -128)

# By what they have in common: compile-time choices of the function.
CONVOLUTIONS: dict[tuple[str, bool], list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    ("paired", False): [
        ((5, 6, 8, 6), {"kernel": (1, 1)}),
        ((1, 3, 5, 7), {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT}),
        ((1, 1, 9, 2), {"kernel": (1, 1)}),
        ((4, 5, 1, 1), {"padding": SAME3}),
        ((6, 7, 3, 5), {"padding": ((0, 1), (0, 1)), "strides": (2, 2), "activation": graphs.RELU6}),
        ((9, 8, 2, 3), {"kernel": (5, 5), "padding": ((2, 2), (2, 2)), "batch": 2}),
        ((9, 1, 4, 3), {"kernel": (7, 1), "padding": ((3, 2), (0, 0)), "bias": False}),
        ((2, 11, 5, 4), {"kernel": (1, 7), "per_channel": False}),
        ((13, 7, 1, 6), {"kernel": (10, 4), "padding": ((4, 5), (1, 1)), "strides": (2, 2)}),
        ((9, 10, 3, 4), {"dilations": (2, 3), "padding": ((2, 2), (3, 1))}),
        ((2, 3, 4, 6), {"padding": ((4, 4), (5, 4)), "batch": 3}),
    ],
    ("int16", False): [
        ((5, 8, 7, 5), {"saturated": True, "out": graphs.int8_element(4.0, 7), "padding": SAME3}),
        ((3, 1, 6, 1), {"kernel": (1, 1), "saturated": True, "out": graphs.int8_element(4.0, 7)}),
    ],
    ("paired", True): [((3, 5, 6, 5), {"out": graphs.int8_element(0.00002, 0), "padding": SAME3})],
    ("int16", True): [((4, 3, 6, 6), {"out": graphs.int8_element(0.00002, 0), "saturated": True})],
}  # fmt: skip

DENSE: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((64, 12), {}),
    ((37, 17), {"batch": 3, "activation": graphs.RELU6}),
    ((1, 24), {"batch": 4}),
    ((66, 9), {"per_channel": True, "bias": False, "batch": 5}),
    ((24, 10), {"out": graphs.int8_element(0.00002, 0)}),
    ((200, 10), {"saturated": True, "out": graphs.int8_element(4.0, 7)}),
]


@pytest.fixture(autouse=True)
def only_compact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single layers would mostly be computed by smaller kernels."""
    kernels = [k for k in KERNELS if isinstance(k, (Conv2DCompactDsp, FullyConnectedCompactDsp))]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", kernels)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels have two words wherever these suffice, however few they are."""
    prefer(monkeypatch, Conv2DCompactPackedDsp.name, FullyConnectedCompactPackedDsp.name)


def _compiled(graph: Graph, core: str = "cortex-m4", *flags: str) -> Program:
    chosen = target.load(core)
    chosen = replace(chosen, cpu_flags=(*chosen.cpu_flags, *flags))
    return compile_graph(graph, chosen, Options(optimize="size"))


def _convolutions(choice: tuple[str, bool]) -> list[Graph]:
    return [graphs.conv2d_graph(*a, seed=i, **o) for i, (a, o) in enumerate(CONVOLUTIONS[choice])]


def _all() -> Graph:
    dense = [graphs.fully_connected_graph(*a, seed=i, **o) for i, (a, o) in enumerate(DENSE)]
    return merge([*(graph for choice in CONVOLUTIONS for graph in _convolutions(choice)), *dense])


@pytest.mark.parametrize("choice", CONVOLUTIONS)
def test_layers_share_one_function(choice: tuple[str, bool]) -> None:
    program = _compiled(merge(_convolutions(choice)))
    (spec,) = {layer.call.function.spec for layer in program.layers}
    assert (*choice, dict(spec)["shift"]) in {("paired", False, 12), (*choice, 0)}
    assert spec[:2] == (("packing", choice[0]), ("general", choice[1]))


def test_fully_connected_layers_share_the_function() -> None:
    both = merge([graphs.conv2d_graph(4, 4, 8, 6), graphs.fully_connected_graph(30, 7)])
    assert len({layer.call.function for layer in _compiled(both).layers}) == 1


def test_compilers_are_silent(tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc", "clang")
    check_core([_compiled(_all())], "cortex-m4", tmp_path)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize(
    "core_and_flags", sampled([("cortex-m4",), ("cortex-m33", "-DMF_NO_ASM")], 2), ids=" ".join
)
def test_equals_reference(core_and_flags: tuple[str, ...]) -> None:
    need_tools(*CROSS_TOOLS)
    program = _compiled(_all(), *core_and_flags)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference


def _all_packed() -> Graph:
    """Also channels that are the same for all inputs, first and second ones."""
    constant = [
        graphs.with_constant_channel(graphs.conv2d_graph(3, 4, 5, filters, (1, 2), seed=filters), channel)
        for filters, channel in ((4, 0), (3, 2), (6, 3))
    ]
    wide = [
        graphs.conv2d_graph(5, 8, 7, 5, saturated=True, out=graphs.int8_element(1.0, 7), padding=SAME3)
        for _ in range(2)
    ]
    return merge([_all(), *constant, wide[0], graphs.with_constant_channel(wide[1], 1)])


def _packed_specs(program: Program) -> set[tuple[Any, ...]]:
    specs = (dict(layer.call.function.spec) for layer in program.layers)
    return {(spec["packing"], spec["general"], spec["shift"]) for spec in specs}


@pytest.mark.usefixtures("packed")
def test_compilers_are_silent_about_two_words(tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc", "clang")
    program = _compiled(_all_packed())
    assert {("paired", False, 12), ("int16", False, 16), ("paired", True, 0)} <= _packed_specs(program)
    check_core([program], "cortex-m4", tmp_path)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.usefixtures("packed")
@pytest.mark.parametrize(
    "core_and_flags", sampled([("cortex-m4",), ("cortex-m33", "-DMF_NO_ASM")], 2), ids=" ".join
)
def test_two_words_equal_the_reference(core_and_flags: tuple[str, ...]) -> None:
    need_tools(*CROSS_TOOLS)
    program = _compiled(_all_packed(), *core_and_flags)
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference


def test_two_words_are_for_models_that_gain_by_them() -> None:
    few = _compiled(graphs.conv2d_graph(4, 4, 8, 6))
    assert few.layers[0].kernel.name == Conv2DCompactPackedDsp.name
    both = _compiled(merge([*_convolutions(("paired", False))[:2], *_convolutions(("paired", True))]))
    assert {layer.kernel.name for layer in both.layers} >= {Conv2DCompactPackedDsp.name}


def test_channels_that_need_more_are_refused() -> None:
    """Left shifts of 2 to 8 do not bring all channels to one shift to the right."""
    apart = graphs.conv2d_graph(4, 4, 8, 6, out=graphs.int8_element(2.0**-16, 0))
    reason = Conv2DCompactPackedDsp().supports(layer_of(apart))
    assert reason is not None and "the same right shift" in reason
    assert Conv2DCompactPackedDsp().supports(layer_of(graphs.conv2d_graph(4, 4, 8, 6))) is None
