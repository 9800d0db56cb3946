"""Fully connected layers for Helium, on the simulated core, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from microfold import target, verify
from microfold.compiler import compile_graph
from tests.kernels import graphs
from tests.needs import CROSS_TOOLS

pytestmark = pytest.mark.needs(*CROSS_TOOLS)

CASES: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "whole": ((128, 16), {"activation": graphs.RELU, "out": graphs.int8_element(0.05, -128)}),
    "tails": ((37, 7), {}),
    "less than a vector": ((5, 3), {"activation": graphs.RELU6}),
    "batch": ((50, 6), {"batch": 3}),
    "saturated": ((640, 12), {"saturated": True}),
    "per channel, no bias": ((20, 9), {"per_channel": True, "bias": False}),
    "multipliers above one": ((33, 8), {"out": graphs.int8_element(0.0004, 3)}),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference(case: str) -> None:
    arguments, options = CASES[case]
    graph = graphs.fully_connected_graph(*arguments, seed=len(case), **options)
    program = compile_graph(graph, target.load("cortex-m55"))
    assert program.layers[0].kernel.name == "s8_fully_connected__mve_4"
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference
