"""Fully connected layers for cores with DSP instructions, on the simulated core, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from microfold.kernels.fully_connected.dsp import block_units, narrow_biases
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.choice import candidates_of, prefer
from tests.kernels.cores import assert_chosen, assert_exact, compile_all, load
from tests.needs import CROSS_TOOLS
from tests.sampling import sampled

KERNEL, PAIRS = "s8_fully_connected__dsp_8", "s8_fully_connected__dsp_2"
RELU_OUT = graphs.int8_element(0.05, -128)

needs_tools = pytest.mark.needs(*CROSS_TOOLS)

CASES: dict[str, tuple[tuple[int, int], dict[str, Any], dict[str, Any]]] = {
    "units in pairs": ((64, 12), {}, {"packing": "paired", "requantize": "short", "common": True}),
    "relu": ((40, 16), {"activation": graphs.RELU, "out": RELU_OUT}, {"requantize": "short_relu"}),
    "odd units and inputs, batch 3": (
        (37, 17),
        {"batch": 3, "activation": graphs.RELU6},
        {"rest": True, "clamp": True},
    ),
    "3 units": ((130, 3), {}, {}),
    "44 inputs": ((44, 16), {}, {"rest": False}),
    "1 input": ((1, 24), {}, {"rest": True}),
    "no bias, per channel": ((66, 9), {"per_channel": True, "bias": False}, {"common": False}),
    "relu, per channel": (
        (41, 11),
        {"per_channel": True, "activation": graphs.RELU, "out": RELU_OUT},
        {"common": False, "requantize": "short_relu"},
    ),
    "multiplier above one": ((24, 10), {"out": graphs.int8_element(0.00002, 0)}, {"requantize": "general"}),
    "saturated weights": (
        (200, 10),
        {"saturated": True, "out": graphs.int8_element(4.0, 7)},
        {"packing": "int16"},
    ),
}  # fmt: skip


# On cores that issue two instructions at a time, the loop runs once less than there are steps of four inputs.
DUAL_CASES: dict[str, tuple[tuple[int, int], dict[str, Any], dict[str, Any]]] = {
    "saturated, 4 inputs": (
        (4, 8),
        {"saturated": True, "out": graphs.int8_element(4.0, 7)},
        {"packing": "int16"},
    ),
    "4 inputs": ((4, 8), {}, {"packing": "paired"}),
    "8 inputs": ((8, 8), {"activation": graphs.RELU}, {}),
    "15 inputs": ((15, 18), {"batch": 2}, {}),
    "fine outputs": ((4, 64), {"batch": 24, "largest": 9, "out": graphs.int8_element(7e-4, 5)}, {}),
}  # fmt: skip


def check(
    names: Iterable[str],
    optimize: str = "balanced",
    flags: tuple[str, ...] = (),
    core: str = "cortex-m4",
    kernel: str = KERNEL,
    **more: str,
) -> None:
    cases = CASES | DUAL_CASES
    made = {name: graphs.fully_connected_graph(*cases[name][0], **cases[name][1]) for name in names}
    own = {"late_loads": core != "cortex-m4"}
    wanted = {name: cases[name][2] | own | more for name in made}
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, kernel)
        program, layers = compile_all(made, load(core, *flags), Options(optimize=optimize), wanted)
    assert_chosen(layers, kernel, wanted)
    assert all(layer.call.scratch == 0 for layer in program.layers)
    assert_exact(program, 8)


@pytest.mark.slow
@pytest.mark.always
@needs_tools
def test_equals_reference() -> None:
    check(CASES)


@pytest.mark.slow
@needs_tools
def test_two_instructions_at_a_time() -> None:
    check(CASES | DUAL_CASES, core="cortex-m7")


@pytest.mark.slow
@needs_tools
def test_speed_takes_no_larger_weights() -> None:
    check(["odd units and inputs, batch 3", "relu"], "speed", packing="paired")


@pytest.mark.slow
@pytest.mark.always
@needs_tools
def test_two_units_at_a_time() -> None:
    check(CASES, kernel=PAIRS)
    check(["odd units and inputs, batch 3"], flags=("-DMF_NO_ASM",), kernel=PAIRS)


NARROW = {
    "units in pairs": True,
    "relu": True,
    "odd units and inputs, batch 3": True,
    "3 units": True,
    "1 input": True,
    "no bias, per channel": False,
    "saturated weights": True,
    "15 inputs": True,
    "fine outputs": True,
}


@pytest.mark.slow
@needs_tools
@pytest.mark.parametrize(
    "core_and_flags",
    sampled(
        [
            ("cortex-m4",),
            ("cortex-m7",),
            ("cortex-m4", "-mno-unaligned-access"),
            ("cortex-m4", "-DMF_NO_ASM"),
        ],
        4,
    ),
    ids=" ".join,
)
def test_biases_of_three_bytes(core_and_flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where code is to be small, and units have one scale."""
    prefer(monkeypatch, KERNEL)
    cases = CASES | DUAL_CASES
    made = {name: graphs.fully_connected_graph(*cases[name][0], **cases[name][1]) for name in NARROW}
    wanted = {name: {"narrow": narrow} for name, narrow in NARROW.items()}
    program, layers = compile_all(made, load(*core_and_flags), Options(optimize="size"), wanted)
    assert_chosen(layers, KERNEL, wanted)
    packings = {dict(layers[name].call.function.spec)["packing"] for name, narrow in NARROW.items() if narrow}
    assert packings == {"paired", "int16"}
    assert_exact(program, 8)


def test_bytes_of_narrow_biases() -> None:
    """Three little-endian bytes of each unit, of an even number of them, behind one more."""
    bias = np.array([1, -2, (1 << 23) - 1, -(1 << 23) + 1, 70_000])
    constant = narrow_biases(bias)
    assert constant is not None and constant.alignment == 4 and constant.array.size == 1 + 3 * 6
    data = constant.array.tobytes()
    words = [int.from_bytes(data[3 * k : 3 * k + 4], "little", signed=True) >> 8 for k in range(6)]
    assert words == [*bias.tolist(), 0]
    assert narrow_biases(np.array([0, 1 << 23])) is None
    assert narrow_biases(np.array([-(1 << 23)])) is None


def test_few_units_have_no_code_for_eight() -> None:
    for units, kernel in ((2, PAIRS), (7, PAIRS), (8, KERNEL)):
        assert candidates_of(graphs.fully_connected_graph(40, units))[0].kernel.name == kernel


@pytest.mark.slow
@needs_tools
def test_without_assembly() -> None:
    names = ["odd units and inputs, batch 3", "saturated weights", "relu, per channel"]
    check(names, flags=("-DMF_NO_ASM",))


def test_units_are_stored_in_reading_order() -> None:
    words = np.arange(5 * 4).reshape(5, 4)
    expected = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 16, 17, 18, 19]
    assert block_units(words, 1).tolist() == expected
    assert block_units(words, 0).tolist() == list(range(20))
