"""Fully connected layers for Helium, on the simulated core, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.types import DType
from microfold.kernels.fully_connected.mve import FullyConnectedMve
from microfold.kernels.kernel import KERNELS
from microfold.kernels.packing import mve
from tests.kernels import graphs
from tests.kernels.cores import assert_exact, check_all, compile_all, load

RELU_OUT = graphs.int8_element(0.05, -128)

CASES: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "whole": ((128, 16), {"activation": graphs.RELU, "out": graphs.int8_element(0.05, -128)}),
    "tails": ((37, 7), {}),
    "less than a vector": ((5, 3), {"activation": graphs.RELU6}),
    "batch": ((50, 6), {"batch": 3}),
    "saturated": ((640, 12), {"saturated": True}),
    "per channel, no bias": ((20, 9), {"per_channel": True, "bias": False}),
    "multipliers above one": ((33, 8), {"out": graphs.int8_element(0.0004, 3)}),
    "per channel, relu": ((40, 8), {"per_channel": True, "activation": graphs.RELU, "out": RELU_OUT}),
    "one scale": ((48, 12), {}),
    "one scale, relu, 8 inputs": ((8, 20), {"activation": graphs.RELU, "out": RELU_OUT}),
    "one scale, one input": ((1, 4), {}),
    "one scale, relu, 39 inputs": ((39, 8), {"activation": graphs.RELU, "out": RELU_OUT, "saturated": True}),
}


def test_equals_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a convolution, the batch takes fewer instructions.
    own = [kernel for kernel in KERNELS if isinstance(kernel, FullyConnectedMve)]
    monkeypatch.setattr("microfold.kernels.selection.candidates.KERNELS", own)
    cases = [graphs.fully_connected_graph(*CASES[c][0], seed=len(c), **CASES[c][1]) for c in CASES]
    check_all(cases, "cortex-m55", {"s8_fully_connected__mve_4"}, runs=8)


@pytest.mark.slow
def test_without_assembly() -> None:
    """All of it has the same in C."""
    made = {c: graphs.fully_connected_graph(*CASES[c][0], seed=2, **CASES[c][1]) for c in CASES}
    program, _ = compile_all(made, load("cortex-m55", "-DMF_NO_ASM"))
    assert_exact(program, 4)


@pytest.mark.slow
@pytest.mark.always
def test_biases_of_one_scale_have_24_bits() -> None:
    def with_bias(largest: int) -> Graph:
        graph = graphs.fully_connected_graph(16, 8, out=graphs.int8_element(20.0, 1))
        (bias,) = [value for value in graph.constants if value.type.dtype is DType.INT32]
        biases = np.linspace(-largest, largest, 8).astype(np.int32)
        return replace(graph, constants={**graph.constants, bias: biases})

    # The input's zero point adds less than 2^19 to them.
    made = {"fit": with_bias((1 << 23) - (1 << 19)), "do not": with_bias((1 << 23) + (1 << 19))}
    program, layers = compile_all(made, load("cortex-m55"))
    assert {name: dict(layer.call.function.spec)["common"] for name, layer in layers.items()} == {
        "fit": True,
        "do not": False,
    }
    assert_exact(program, 4)


def test_biases_of_24_bits_are_halfwords_and_bytes() -> None:
    biases = np.array([-1, 1 - (1 << 23), (1 << 23) - 1, 0x8000, 0x7FFF, -0x8000], np.int32)
    packed = mve.pack_24_bits(biases)
    assert packed.dtype == np.int32 and packed.shape == (2, 3)
    lower = np.ascontiguousarray(packed[:, :2]).view(np.uint16).astype(np.int32)
    upper = np.ascontiguousarray(packed[:, 2:]).view(np.int8).astype(np.int32)
    assert np.array_equal((upper * 0x10000 + lower).reshape(-1), [*biases, 0, 0])


def test_rows_follow_their_records() -> None:
    matrix = np.arange(-15, 15, dtype=np.int8).reshape(5, 6)
    records = np.arange(6, dtype=np.int32).reshape(2, 3)
    packed = mve.pack_rows(matrix, records)
    assert packed.dtype == np.int32 and packed.shape == (2, 3 + 6)
    assert np.array_equal(packed[:, :3], records)
    rows = np.ascontiguousarray(packed[:, 3:]).view(np.int8).reshape(8, 6)
    assert np.array_equal(rows[:5], matrix) and not rows[5:].any()
