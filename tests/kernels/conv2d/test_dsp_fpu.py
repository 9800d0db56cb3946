"""Convolution with weights in registers of the floating-point unit, on the simulated core, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.kernels.conv2d.dsp_fpu import Conv2DFpuDsp
from microfold.kernels.conv2d.dsp_fpu_registers import Placement, place_weights
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.options import Options
from tests.codegen.builds import STRICT, write_sources
from tests.codegen.sweep import arm_headers
from tests.codegen.test_warnings import silent
from tests.kernels import graphs
from tests.kernels.choice import without_biasless
from tests.kernels.cores import assert_chosen, assert_exact, compile_all, load
from tests.needs import need_tools
from tests.sampling import sampled

KERNEL = "s8_conv2d__dsp_fpu"
SPEED = Options(optimize="speed")
SAME3 = ((1, 1), (1, 1))
RELU_OUT = graphs.int8_element(0.05, -128)
SATURATED_OUT = graphs.int8_element(1.0, 7)

# Arguments of the graph, and what the kernel must have chosen.
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "pointwise": (
        (6, 6, 8, 6),
        {"kernel": (1, 1)},
        {"requantize": "short", "records": True, "held": 4, "packing": "int16", "rest": 0},
    ),
    "pointwise, relu": (
        (8, 8, 16, 10),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT},
        {"requantize": "short_relu", "records": True},
    ),
    "pointwise, 1 channel, 1 pixel left": ((3, 3, 1, 17), {"kernel": (1, 1)}, {"rest": 1}),
    "pointwise, 3 channels, 2 pixels left": ((6, 5, 3, 7), {"kernel": (1, 1)}, {"rest": 2}),
    "pointwise, 25 channels, 3 pixels left": ((1, 7, 25, 5), {"kernel": (1, 1)}, {"rest": 3, "held": 13}),
    "pointwise, many groups, batch 3": (
        (9, 9, 30, 4),
        {"kernel": (1, 1), "batch": 3},
        {"streamed": 2, "rest": 3},
    ),
    "pointwise, 53 channels": ((5, 5, 53, 5), {"kernel": (1, 1)}, {"packing": "paired", "streamed": 1}),
    "pointwise, 48 channels, relu": (
        (7, 7, 48, 6),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT},
        {"requantize": "biasless", "records": True, "held": 24},
    ),
    "pointwise, 64 channels, relu": (
        (13, 3, 64, 6),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": RELU_OUT},
        {"requantize": "biasless", "streamed": 4, "loop": False},
    ),
    "pointwise, loop, relu": (
        (4, 6, 150, 4),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": graphs.int8_element(0.5, -128)},
        {"requantize": "biasless", "loop": True},
    ),
    "pointwise, batches, relu": (
        (7, 5, 210, 4),
        {"kernel": (1, 1), "activation": graphs.RELU, "out": graphs.int8_element(0.5, -128)},
        {"requantize": "biasless", "batches": 5},
    ),
    "pointwise, loop": ((4, 6, 150, 4), {"kernel": (1, 1)}, {"packing": "paired", "loop": True}),
    "pointwise, batches": ((7, 5, 210, 4), {"kernel": (1, 1)}, {"packing": "paired", "batches": 5}),
    "pointwise, saturated weights": (
        (4, 7, 48, 6),
        {"kernel": (1, 1), "saturated": True, "out": SATURATED_OUT},
        {"packing": "int16", "shift": 16},
    ),
    "pointwise, saturated weights, loop": (
        (5, 5, 96, 3),
        {"kernel": (1, 1), "saturated": True, "out": SATURATED_OUT},
        {"packing": "int16", "loop": True},
    ),
    "pointwise, clamped, 153 outputs": (
        (3, 3, 1, 17),
        {"kernel": (1, 1), "activation": graphs.RELU6},
        {"clamp_behind": True, "rest": 1},
    ),
    "3x3 same, clamped below, batch 2": (
        (7, 9, 5, 3),
        {"padding": SAME3, "activation": graphs.RELU, "batch": 2},
        {"clamp_behind": True},
    ),
    "padded, clamped above": (
        (21, 3, 3, 4),
        {"padding": SAME3, "activation": Clip(-20.0, 1.0)},
        {"clamp_behind": True, "padded": True},
    ),
    "1x1 stride 2": (
        (9, 17, 12, 8),
        {"kernel": (1, 1), "strides": (2, 2)},
        {"pointwise": False, "shared": 0},
    ),
    "1x1 stride 2, wide": ((17, 9, 20, 8), {"kernel": (1, 1), "strides": (2, 2)}, {"segment": 0}),
    "3x3 same": ((8, 8, 4, 6), {"padding": SAME3}, {"requantize": "short", "shared": 12, "segment": 12}),
    "3x3 same, relu, 5 channels": (
        (11, 7, 5, 7),
        {"padding": SAME3, "activation": graphs.RELU, "out": RELU_OUT},
        {"requantize": "biasless", "rest": 1},
    ),
    "3x3 stride 2, asymmetric": (
        (13, 17, 3, 8),
        {"padding": ((0, 1), (0, 1)), "strides": (2, 2)},
        {"padded": False, "shared": 5},
    ),
    "3x3 stride 2 and 1": ((10, 11, 6, 4), {"padding": SAME3, "strides": (2, 1)}, {"segment": 0}),
    "3x3 stride 1 and 3": ((9, 22, 2, 5), {"padding": SAME3, "strides": (1, 3)}, {}),
    "3x3 stride 4": ((17, 21, 3, 5), {"strides": (4, 4)}, {"shared": 0}),
    "3x3, 16 channels, batch 2": (
        (9, 10, 16, 6),
        {"padding": SAME3, "batch": 2},
        {"packing": "paired", "loop": True},
    ),
    "5x5": ((12, 10, 2, 4), {"kernel": (5, 5), "padding": ((2, 2), (2, 2))}, {"padded": True}),
    "7x1": ((15, 5, 6, 8), {"kernel": (7, 1), "padding": ((3, 3), (0, 0))}, {}),
    "1x7": ((3, 14, 6, 8), {"kernel": (1, 7), "padding": ((0, 0), (3, 3))}, {}),
    "10x4, 1 channel": (
        (49, 10, 1, 9),
        {"kernel": (10, 4), "strides": (2, 2), "padding": ((4, 5), (1, 1))},
        {"padded": True, "packing": "paired"},
    ),
    "padded, batch 2, 3 columns": (
        (21, 3, 3, 4),
        {"kernel": (3, 3), "padding": ((2, 1), (1, 1)), "batch": 2},
        {"padded": True},
    ),
    "padded behind all windows": (
        (9, 12, 2, 4),
        {"kernel": (2, 2), "strides": (1, 5), "padding": ((1, 0), (2, 0))},
        {"padded": True},
    ),
    "dilation 2": (
        (11, 12, 3, 6),
        {"dilations": (2, 2), "padding": ((2, 2), (2, 2))},
        {"padded": False, "shared": 0},
    ),
    "dilation 3x1": ((14, 9, 1, 5), {"dilations": (3, 1), "padding": ((3, 3), (1, 1))}, {"shared": 0}),
    "dilation 1x2": ((9, 12, 3, 6), {"dilations": (1, 2), "padding": ((1, 1), (2, 2))}, {"shared": 10}),
    "width 1, 1 channel left": ((13, 1, 8, 3), {"padding": SAME3}, {"rest": 1}),
    "width 2, batch 2": ((8, 2, 5, 6), {"padding": SAME3, "batch": 2}, {}),
    "large padding": ((2, 3, 4, 6), {"padding": ((4, 4), (5, 4))}, {}),
    "output larger than input": ((9, 9, 2, 24), {"padding": SAME3}, {}),
    "per tensor, no bias": ((6, 6, 8, 6), {"padding": SAME3, "per_channel": False, "bias": False}, {}),
    "saturated weights": (
        (9, 6, 9, 6),
        {"saturated": True, "out": SATURATED_OUT},
        {"packing": "int16", "loop": True},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def only_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers are small: other kernels would be chosen."""
    others: list[Kernel] = [k for k in KERNELS if k.op is not Conv2D or isinstance(k, Conv2DFpuDsp)]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", others)


def check(
    names: Iterable[str],
    core: str = "cortex-m4",
    *flags: str,
    wanted: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    need_tools("arm-none-eabi-gcc", "qemu-system-arm")
    cases = {name: graphs.conv2d_graph(*CASES[name][0], **CASES[name][1]) for name in names}
    wanted = wanted or {name: CASES[name][2] for name in cases}
    program, layers = compile_all(cases, load(core, *flags), SPEED, wanted)
    assert_chosen(layers, KERNEL, wanted)
    assert_exact(program, 8)


@pytest.mark.slow
@pytest.mark.always
def test_equals_reference() -> None:
    check(CASES)


@pytest.mark.slow
def test_with_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sums without biases have no form, those with them do as before."""
    without_biasless(monkeypatch)
    name = "pointwise, 64 channels, relu"
    check([name], wanted={name: {"requantize": "short_relu", "streamed": 6, "loop": False}})


@pytest.mark.slow
def test_without_assembly() -> None:
    names = ("pointwise, 64 channels, relu", "3x3 stride 2, asymmetric", "10x4, 1 channel")
    check(names, "cortex-m4", "-DMF_NO_ASM")


@pytest.mark.slow
@pytest.mark.parametrize(
    "core_and_flags",
    sampled([("cortex-m4", "-O3"), ("cortex-m4", "-Os")], 2),
    ids=" ".join,
)
def test_other_cores_and_flags(core_and_flags: tuple[str, ...]) -> None:
    check(["3x3 same, relu, 5 channels"], *core_and_flags)


@pytest.mark.slow
def test_layers_in_one_arena() -> None:
    """Outputs lie over inputs that are still being read."""
    graph = graphs.conv2d_graph(18, 18, 3, 12, padding=SAME3, activation=graphs.RELU, out=RELU_OUT)
    graph = graphs.append_conv2d(graph, 12, (3, 3))
    graph = graphs.append_conv2d(graph, 20, (1, 1))
    need_tools("arm-none-eabi-gcc", "qemu-system-arm")
    program = compile_graph(graph, target.load("cortex-m4"), SPEED)
    assert [layer.kernel.name for layer in program.layers] == [KERNEL] * 3
    assert_exact(program, 8)


def test_placement() -> None:
    """All in registers, requantisation too; without it; some streamed; a loop; batches."""
    assert place_weights(11, 2, 4, spaced=False) == Placement(11, records=True)
    assert place_weights(13, 2, 4, spaced=False) == Placement(13)
    assert place_weights(16, 2, 4, spaced=True) == Placement(12, 4)
    assert place_weights(72, 1, 6, spaced=True) == Placement(24, 16, 3)
    assert place_weights(144, 1, 6, spaced=True) == Placement(24, batches=6)
    for words in (1, 2):
        for pairs in range(1, 400):
            for spaced in (False, True):
                placement = place_weights(pairs, words, 4, spaced=spaced)
                used = 2 + words * placement.held + (4 if placement.records else 0)
                pointers = 3 + spaced + (not placement.records)
                pointers += placement.iterations > 0 or placement.batches > 0
                assert used + pointers <= 32
                own = 0 if placement.batches else placement.held
                assert own + placement.stream == pairs and placement.held > 0


def test_reasons() -> None:
    graph = graphs.conv2d_graph(8, 8, 8, 8, (1, 1))
    chosen = target.load("cortex-m4")
    with pytest.raises(UnsupportedModelError, match="the target lacks fpu"):
        compile_graph(graph, replace(chosen, features=chosen.features - {"fpu"}), SPEED)


@pytest.mark.slow
@pytest.mark.parametrize("optimize", ["-O0", "-O3"])
@pytest.mark.parametrize("compiler", ["arm-none-eabi-gcc", "clang"])
def test_compilers_are_silent(compiler: str, optimize: str, tmp_path: Path) -> None:
    """And take all of the assembly: clang has an assembler of its own."""
    need_tools("arm-none-eabi-gcc", compiler)
    flags = [*target.load("cortex-m4").cpu_flags, *STRICT, optimize, "-c"]
    command = ["clang", "--target=arm-none-eabi", *arm_headers()] if compiler == "clang" else [compiler]
    for number, name in enumerate(
        ["pointwise, batches", "3x3 same, clamped below, batch 2", "10x4, 1 channel"]
    ):
        arguments, options, _ = CASES[name]
        folder = tmp_path / str(number)
        folder.mkdir()
        program = compile_graph(graphs.conv2d_graph(*arguments, **options), target.load("cortex-m4"), SPEED)
        sources = write_sources(program, folder)
        silent([*command, *flags, *sources], folder)
