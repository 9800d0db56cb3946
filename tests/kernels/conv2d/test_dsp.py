"""Convolution for cores with DSP instructions, on the simulated core, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microfold import target
from microfold.ir.graph import Graph
from microfold.kernels.conv2d.dsp import Conv2DDsp
from microfold.kernels.kernel import KERNELS
from microfold.ops.convolution.conv2d import Conv2D
from microfold.options import Options
from tests.codegen.builds import STRICT, write_sources
from tests.codegen.sweep import arm_headers
from tests.codegen.test_warnings import silent
from tests.kernels import graphs
from tests.kernels.choice import with_quads, without_biasless, without_quads
from tests.kernels.cores import assert_chosen, assert_exact, compile_all, load
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

KERNEL = "s8_conv2d__dsp_4x2"
SAME3 = ((1, 1), (1, 1))
RELU_OUT = graphs.int8_element(0.05, -128)
WIDE_OUT = graphs.int8_element(4.0, 7)

pytestmark = pytest.mark.needs(*CROSS_TOOLS)


@pytest.fixture(autouse=True)
def only_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many cases would be computed faster by other kernels, which have tests of their own."""
    kernels = [kernel for kernel in KERNELS if kernel.op is not Conv2D or isinstance(kernel, Conv2DDsp)]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", kernels)


# Arguments of the graph, and what the kernel must have chosen.
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "pointwise": ((5, 5, 8, 6), {"kernel": (1, 1)}, {"pointwise": True, "packing": "paired"}),
    "pointwise, relu": (
        (4, 6, 16, 10),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT},
        {"requantize": "biasless", "clamp": False},
    ),
    "pointwise, 1 channel": ((21, 19, 1, 17), {"kernel": (1, 1)}, {}),
    "pointwise, 3 channels": ((6, 5, 3, 7), {"kernel": (1, 1)}, {}),
    "pointwise, 20 channels, batch 3": ((3, 3, 20, 5), {"kernel": (1, 1), "batch": 3}, {}),
    "1x1 stride 2": ((7, 9, 12, 8), {"kernel": (1, 1), "strides": (2, 2)}, {"pointwise": False}),
    "3x3 same": ((8, 7, 4, 6), {"padding": SAME3}, {"requantize": "short", "pointwise": False}),
    "3x3 same, relu6, other zero point": (
        (7, 9, 5, 7),
        {"padding": SAME3, "strides": (2, 1), "activation": graphs.RELU6},
        {"requantize": "biasless", "clamp_behind": True},
    ),
    "3x3 stride 2, asymmetric": (
        (12, 11, 3, 8),
        {"padding": ((0, 1), (0, 1)), "strides": (2, 2)},
        {"neighbours": True},
    ),
    "3x3 valid": ((6, 9, 7, 5), {}, {}),
    "5x5": ((9, 8, 2, 4), {"kernel": (5, 5), "padding": ((2, 2), (2, 2))}, {}),
    "7x1": ((12, 3, 6, 8), {"kernel": (7, 1), "padding": ((3, 3), (0, 0))}, {}),
    "1x7": ((2, 14, 6, 8), {"kernel": (1, 7), "padding": ((0, 0), (3, 3))}, {}),
    "10x4, 1 channel": (
        (20, 9, 1, 16),
        {"kernel": (10, 4), "strides": (2, 2), "padding": ((4, 5), (1, 1))},
        {},
    ),
    "dilation 2": ((9, 10, 3, 6), {"dilations": (2, 2), "padding": ((2, 2), (2, 2))}, {}),
    "dilation 3x1": ((9, 5, 4, 5), {"dilations": (3, 1), "padding": ((3, 3), (1, 1))}, {}),
    "batch 2, width 1": ((8, 1, 8, 4), {"padding": SAME3, "batch": 2}, {}),
    "width 2": ((8, 2, 5, 6), {"padding": SAME3}, {"neighbours": False}),
    "large padding": ((2, 3, 4, 6), {"padding": ((4, 4), (5, 4))}, {}),
    "3 output channels": ((9, 9, 6, 3), {"padding": SAME3}, {}),
    "output larger than input": ((9, 9, 2, 24), {"padding": SAME3}, {}),
    "3 output pixels": ((3, 5, 8, 16), {}, {"group": 1}),
    "window as large as the image": ((4, 4, 8, 16), {"kernel": (4, 4)}, {"group": 1}),
    "per tensor, no bias": ((6, 6, 8, 6), {"padding": SAME3, "per_channel": False, "bias": False}, {}),
    "wide range of scales": ((6, 6, 16, 6), {"kernel": (1, 1), "out": WIDE_OUT}, {"shift": 16}),
    "multiplier above one": (
        (6, 6, 8, 6),
        {"padding": SAME3, "out": graphs.int8_element(0.00002, 0)},
        {"requantize": "general", "packing": "paired"},
    ),
    "saturated weights": ((6, 6, 9, 6), {"saturated": True, "out": WIDE_OUT}, {"packing": "int16"}),
    "saturated weights, multiplier above one": (
        (6, 6, 9, 6),
        {"saturated": True, "out": graphs.int8_element(0.00002, 0), "activation": graphs.RELU},
        {"packing": "int16", "requantize": "general"},
    ),
}  # fmt: skip


RELU = {"activation": graphs.RELU, "out": RELU_OUT}
# Of these, negative sums need no correction.
SINGLE_ROUNDED = ("pointwise, relu", "3x3 same, relu6, other zero point")


def _made(*names: str) -> dict[str, Graph]:
    return {name: graphs.conv2d_graph(*CASES[name][0], **CASES[name][1]) for name in names}


def _wanted(*names: str) -> dict[str, dict[str, Any]]:
    return {name: CASES[name][2] for name in names}


def check(
    cases: dict[str, Graph],
    wanted: dict[str, dict[str, Any]],
    core: str = "cortex-m4",
    optimize: str = "balanced",
    flags: tuple[str, ...] = (),
) -> None:
    program, layers = compile_all(cases, load(core, *flags), Options(optimize=optimize), wanted)
    assert_chosen(layers, KERNEL, wanted)
    assert_exact(program, 8)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m7"]))
def test_equals_reference(core: str) -> None:
    check(_made(*CASES), _wanted(*CASES), core)


@pytest.mark.slow
def test_speed_keeps_int16_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    without_quads(monkeypatch)
    names = ("pointwise, 3 channels", "3x3 same, relu6, other zero point", "3x3 same")
    check(_made(*names), {name: {"packing": "int16"} for name in names}, optimize="speed")


@pytest.mark.slow
def test_two_channels_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where loads side by side gain nothing, or do not make up for more instructions."""
    without_quads(monkeypatch)
    wanted = {name: {**choice, "quads": False} for name, choice in _wanted(*CASES).items()}
    check(_made(*CASES), wanted)


# Rows of 30 outputs, so that they are computed in fours; of their channels the last ones come once more.
QUADS = [4, 5, 6, 7, 8, 13]


@pytest.mark.slow
@pytest.mark.parametrize("flags", sampled([(), ("-DMF_NO_ASM",)], 2))
@pytest.mark.parametrize("biasless", [True, False])
def test_four_channels_at_a_time(
    flags: tuple[str, ...], biasless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rests of channels and pixels, all entries of the loop, and none."""
    with_quads(monkeypatch)
    if not biasless:
        without_biasless(monkeypatch)
    cases = {f"{n} channels": graphs.conv2d_graph(3, 30, 37, n, (1, 1)) for n in QUADS}
    cases |= {f"relu, {n} channels": graphs.conv2d_graph(3, 31, 20, n, (2, 2), **RELU) for n in QUADS}
    cases |= {f"{n} inputs": graphs.conv2d_graph(2, 5, n, 6, (1, 1), **RELU) for n in range(9, 44, 2)}
    cases |= {f"{n} inputs, written": graphs.conv2d_graph(30, 60, n, 8, (1, 1), **RELU) for n in (12, 16)}
    check(cases, {name: {"quads": True} for name in cases}, flags=flags)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("-DMF_NO_ASM",)])
def test_with_biases(flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sums without biases have no form, those with them do as before."""
    without_biasless(monkeypatch)
    wanted = {"requantize": "short_relu", "packing": "paired"}
    check(_made(*SINGLE_ROUNDED), dict.fromkeys(SINGLE_ROUNDED, wanted), flags=flags)


@pytest.mark.parametrize("core", ["cortex-m7", "cortex-m33"])
def test_other_cores(core: str) -> None:
    """Where loads are late, the order of instructions is another one."""
    name = "3x3 same, relu6, other zero point"
    check(_made(name), {name: CASES[name][2] | {"late_loads": core != "cortex-m4"}}, core)


@pytest.mark.slow
def test_without_assembly() -> None:
    names = (*SINGLE_ROUNDED, "pointwise, 3 channels", "3x3 same", "wide range of scales")
    check(_made(*names), _wanted(*names), flags=("-DMF_NO_ASM",))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "flags"), [("cortex-m4", ()), ("cortex-m4", ("-DMF_NO_ASM",)), ("cortex-m7", ())]
)
@pytest.mark.parametrize(("channels", "optimize"), [(7, "balanced"), (16, "speed")])
def test_written_out(channels: int, optimize: str, core: str, flags: tuple[str, ...]) -> None:
    """Few inputs and many outputs: the inner loop is no loop."""
    cases = {
        "few": graphs.conv2d_graph(22, 26, channels, 15, (1, 1)),
        "relu": graphs.conv2d_graph(22, 26, channels, 16, (1, 1), activation=graphs.RELU, out=RELU_OUT),
    }
    steps = {"steps": -(-channels // 2)}
    check(cases, {"few": steps, "relu": steps}, core, optimize, flags)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["cortex-m7", "cortex-m33"])
@pytest.mark.parametrize("biasless", [True, False])
def test_more_pairs_are_written_out_for_speed(
    core: str, biasless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an assembler repeats them; the last channel of an odd number comes once more."""
    if not biasless:
        without_biasless(monkeypatch)
    channels = (17, 20, 64, 66)
    cases = {f"{n} channels": graphs.conv2d_graph(15, 15, n, 15, (1, 1)) for n in channels}
    cases |= {f"relu, {n} channels": graphs.conv2d_graph(15, 15, n, 16, (1, 1), **RELU) for n in channels}
    wanted = {name: {"steps": 0 if "66" in name else -(-int(name.split()[-2]) // 2)} for name in cases}
    check(cases, wanted, core, "speed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "flags"), [("cortex-m4", ()), ("cortex-m4", ("-DMF_NO_ASM",)), ("cortex-m7", ())]
)
def test_rows_share_pairs(core: str, flags: tuple[str, ...]) -> None:
    """Segments of an odd number of bytes: the last ones of two rows are one pair."""
    windows = [
        (rows, columns, channels) for rows in (2, 3, 5) for columns, channels in ((3, 1), (1, 5), (3, 3))
    ]
    cases = {
        f"{rows} rows of {columns}x{channels}": graphs.conv2d_graph(
            13, 14, channels, 9, (rows, columns), padding=SAME3, strides=(2, 1)
        )
        for rows, columns, channels in windows
    }
    wanted = {name: {"joined": int(name[0])} for name in cases}
    cases["apart"] = graphs.conv2d_graph(9, 9, 2, 6, (3, 3), padding=SAME3)
    cases["too many rows"] = graphs.conv2d_graph(16, 9, 1, 9, (7, 3), padding=SAME3)
    cases["few channels"] = graphs.conv2d_graph(9, 9, 3, 7, (3, 3), padding=SAME3)
    cases["single pixels"] = graphs.conv2d_graph(4, 5, 3, 8, (3, 3))
    wanted |= {name: {"joined": 0} for name in ("apart", "too many rows", "few channels")}
    wanted |= {"single pixels": {"joined": 3, "group": 4}}
    check(cases, wanted, core, flags=flags)


@pytest.mark.slow
@pytest.mark.parametrize(("packing", "optimize"), [("paired", "size"), ("int16", "balanced")])
def test_jumps_into_the_loop(packing: str, optimize: str) -> None:
    """Two instructions at a time: the first iteration leaves out all numbers of steps."""
    out = WIDE_OUT if packing == "int16" else None
    cases = {
        f"{channels} channels": graphs.conv2d_graph(
            4, 4, channels, 6, (1, 1), saturated=packing == "int16", out=out
        )
        for channels in range(3, 20, 2)
    }
    check(cases, {name: {"packing": packing, "steps": 0} for name in cases}, "cortex-m7", optimize)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["arm-none-eabi-gcc", "clang"])
def test_compilers_are_silent(compiler: str, tmp_path: Path) -> None:
    """Offsets that are an assembler's expressions; the longest texts."""
    need_tools("arm-none-eabi-gcc", compiler)
    core = target.load("cortex-m7")
    command = ["clang", "--target=arm-none-eabi", *arm_headers()] if compiler == "clang" else [compiler]
    names = ("3x3 same", "saturated weights, multiplier above one")
    program, _ = compile_all(_made(*names), core)
    silent([*command, *core.cpu_flags, *STRICT, "-O2", "-c", *write_sources(program, tmp_path)], tmp_path)
