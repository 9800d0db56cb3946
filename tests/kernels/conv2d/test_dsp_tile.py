"""Tiled convolution for cores with DSP instructions, on the simulated core, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from microfold.kernels.conv2d.dsp import Conv2DDsp
from microfold.kernels.kernel import KERNELS
from microfold.options import Options
from microfold.target import Target
from tests.kernels import graphs
from tests.kernels.choice import prefer, with_quads, without_biasless, without_quads
from tests.kernels.cores import assert_chosen, assert_exact, compile_all, load
from tests.needs import need_tools
from tests.sampling import sampled

KERNEL = "s8_conv2d__dsp_tile"
SAME3 = ((1, 1), (1, 1))
RELU_OUT = graphs.int8_element(0.05, -128)

CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "3x3 same": ((6, 16, 8, 6), {"padding": SAME3}, {"requantize": "short", "packing": "paired"}),
    "3x3 same, relu, odd channels": (
        (5, 11, 4, 7),
        {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT},
        {"requantize": "biasless", "clamp": False},
    ),
    "3x3 same, relu6, other zero point": (
        (5, 9, 12, 5),
        {"padding": SAME3, "activation": graphs.RELU6},
        {"clamp_behind": True},
    ),
    "3x3 stride 2": ((9, 17, 4, 6), {"padding": ((0, 1), (0, 1)), "strides": (2, 2)}, {"stride": 2}),
    "3x3 stride 3": ((7, 22, 8, 4), {"strides": (1, 3)}, {}),
    "1x1 stride 2": ((8, 13, 20, 6), {"kernel": (1, 1), "strides": (2, 2)}, {"taps": (0,)}),
    "2x2 stride 2": ((6, 24, 8, 8), {"kernel": (2, 2), "strides": (2, 2)}, {}),
    "5x5 stride 2": ((7, 15, 4, 4), {"kernel": (5, 5), "strides": (2, 2), "padding": ((2, 2), (2, 2))}, {}),
    "1x7": ((2, 14, 8, 5), {"kernel": (1, 7), "padding": ((0, 0), (3, 3))}, {}),
    "7x1": ((9, 6, 8, 4), {"kernel": (7, 1), "padding": ((3, 3), (0, 0))}, {}),
    "dilation 2, stride 1": ((9, 12, 4, 6), {"dilations": (2, 2), "padding": ((2, 2), (2, 2))}, {}),
    "dilation 3, stride 2": ((9, 20, 4, 10), {"dilations": (1, 3), "strides": (1, 2)}, {}),
    "large padding, batch 2": ((2, 3, 4, 6), {"padding": ((4, 4), (5, 4)), "batch": 2}, {}),
    "saturated": (
        (5, 8, 16, 6),
        {"saturated": True, "out": graphs.int8_element(4.0, 7)},
        {"packing": "int16"},
    ),
    "multiplier above one": (
        (5, 8, 8, 6),
        {"padding": SAME3, "out": graphs.int8_element(0.00002, 0)},
        {"requantize": "general"},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def only_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small layers would mostly be computed from patches."""
    need_tools("arm-none-eabi-gcc", "qemu-system-arm")
    others = [kernel for kernel in KERNELS if not isinstance(kernel, Conv2DDsp)]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", others)


def check(wanted: Mapping[str, Mapping[str, Any]], core: Target, optimize: str = "balanced") -> None:
    """These cases, for each of which the kernel must have chosen this."""
    cases = {name: graphs.conv2d_graph(*CASES[name][0], **CASES[name][1]) for name in wanted}
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, KERNEL)
        program, layers = compile_all(cases, core, Options(optimize=optimize), wanted)
    assert_chosen(layers, KERNEL, wanted)
    assert_exact(program, 8)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m7", "cortex-m33"], 2))
def test_equals_reference(core: str) -> None:
    check({name: wanted for name, (_, _, wanted) in CASES.items()}, load(core))


@pytest.mark.slow
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7"])
def test_int16_weights(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_quads(monkeypatch)
    names = ("3x3 stride 2", "5x5 stride 2", "dilation 3, stride 2")
    check({name: {"packing": "int16"} for name in names}, load(core), "speed")


@pytest.mark.slow
def test_two_channels_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    without_quads(monkeypatch)
    check({name: {**wanted, "quads": False} for name, (_, _, wanted) in CASES.items()}, load("cortex-m4"))


@pytest.mark.slow
@pytest.mark.parametrize("flags", sampled([(), ("-DMF_NO_ASM",)], 2))
@pytest.mark.parametrize("biasless", [True, False])
def test_four_channels_at_a_time(
    flags: tuple[str, ...], biasless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_quads(monkeypatch)
    if not biasless:
        without_biasless(monkeypatch)
    names = [name for name, (_, _, wanted) in CASES.items() if wanted.get("requantize") != "general"]
    names.remove("saturated")
    check({name: {"quads": True} for name in names}, load("cortex-m4", *flags))


@pytest.mark.slow
@pytest.mark.parametrize("optimize", ["size", "speed"])
def test_without_assembly(optimize: str) -> None:
    cases = {"3x3 stride 2": {}, "3x3 same, relu, odd channels": {}}
    check(cases, load("cortex-m33", "-DMF_NO_ASM"), optimize)


@pytest.mark.slow
def test_with_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sums without biases have no form, those with them do as before."""
    without_biasless(monkeypatch)
    check({"3x3 same, relu, odd channels": {"requantize": "short_relu"}}, load("cortex-m4"))
