"""Fully connected layers for Helium, on the simulated core, bit for bit."""

from __future__ import annotations

from typing import Any

from tests.kernels import graphs
from tests.kernels.cores import check_all

CASES: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "whole": ((128, 16), {"activation": graphs.RELU, "out": graphs.int8_element(0.05, -128)}),
    "tails": ((37, 7), {}),
    "less than a vector": ((5, 3), {"activation": graphs.RELU6}),
    "batch": ((50, 6), {"batch": 3}),
    "saturated": ((640, 12), {"saturated": True}),
    "per channel, no bias": ((20, 9), {"per_channel": True, "bias": False}),
    "multipliers above one": ((33, 8), {"out": graphs.int8_element(0.0004, 3)}),
}


def test_equals_the_reference() -> None:
    cases = [graphs.fully_connected_graph(*CASES[c][0], seed=len(c), **CASES[c][1]) for c in CASES]
    check_all(cases, "cortex-m55", {"s8_fully_connected__mve_4"}, runs=8)
