"""Fully connected layers for cores with DSP instructions, on the simulated core, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from microfold.kernels.fully_connected.dsp import block_units
from microfold.options import Options
from tests.kernels import graphs
from tests.kernels.choice import candidates_of, prefer
from tests.kernels.cores import assert_chosen, assert_exact, compile_all, load
from tests.needs import CROSS_TOOLS

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
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, kernel)
        program, layers = compile_all(made, load(core, *flags), Options(optimize=optimize))
    own = {"late_loads": core != "cortex-m4"}
    assert_chosen(layers, kernel, {name: cases[name][2] | own | more for name in made})
    assert all(layer.call.scratch == 0 for layer in program.layers)
    assert_exact(program, 8)


@pytest.mark.slow
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
@needs_tools
def test_two_units_at_a_time() -> None:
    check(CASES, kernel=PAIRS)
    check(["odd units and inputs, batch 3"], flags=("-DMF_NO_ASM",), kernel=PAIRS)


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
