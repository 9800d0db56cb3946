"""Fully connected layers for cores without SIMD instructions, on the simulated cores, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import DType, Quant, TensorType
from microfold.kernels.fully_connected import packed_two_per_word as fully_connected_pairs
from microfold.kernels.fully_connected.packed_two_per_word import (
    FullyConnectedPairsThumb1,
    FullyConnectedPairsThumb2,
)
from microfold.kernels.fully_connected.thumb1 import FullyConnectedThumb1
from microfold.kernels.kernel import Kernel, ResourceTradeoff
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.program import Program
from tests.kernels import graphs
from tests.kernels.choice import avoid, prefer
from tests.kernels.fully_connected.test_dsp import CASES
from tests.kernels.thumb import CORES, check, measured
from tests.sampling import sampled

GRAPHS = [
    *(graphs.fully_connected_graph(*arguments, **options) for arguments, options, _ in CASES.values()),
    *(graphs.fully_connected_graph(9 + units, units, seed=units) for units in (1, 2, 4, 5, 6, 7, 16)),
    graphs.fully_connected_graph(3, 8, batch=2),
    graphs.fully_connected_graph(16, 10, largest=20),
]


def _zero_point_graph(inputs: int, units: int, zero_point: int) -> Graph:
    """Weights with a zero point."""
    rng = np.random.default_rng(3)
    x = graphs.int8_input("x", (2, inputs))
    weights = Value("weights", TensorType(DType.INT8, (units, inputs), Quant.per_tensor(0.001, zero_point)))
    array = rng.integers(-20, 21, (units, inputs)).astype(np.int8)
    return graphs.one_node_graph(FullyConnected(graphs.int8_element()), [x], {weights: array})


# Runs of many lengths: small weights, large ones among others, a first run that is shorter, a single run.
RUNS = [
    *GRAPHS,
    graphs.fully_connected_graph(100, 12, largest=3),
    graphs.fully_connected_graph(68, 9, largest=6, batch=2),
    graphs.fully_connected_graph(53, 8, largest=30, seed=2),
    graphs.fully_connected_graph(61, 3, largest=9),
    _zero_point_graph(40, 10, 5),
]
PAIRS = (FullyConnectedPairsThumb1, FullyConnectedPairsThumb2)


def _check(
    kernel: type[Kernel], cases: list[Graph], monkeypatch: pytest.MonkeyPatch, *, assembly: bool = True
) -> Program:
    (core,) = (core for core, feature in CORES.items() if feature in kernel.features)
    avoid(monkeypatch, lambda other: not isinstance(other, kernel))
    # However much of saturated weights is taken off.
    monkeypatch.setattr(fully_connected_pairs, "RESTS_SHARE", 4.0)
    monkeypatch.setattr(fully_connected_pairs, "MOST_RESTS", 4.0)
    program = check(cases, core, monkeypatch, assembly=assembly)
    assert {layer.kernel.name for layer in program.layers} == {kernel.name}
    return program


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("kernel", [*PAIRS, FullyConnectedThumb1])
def test_equals_reference(kernel: type[Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
    _check(kernel, RUNS if kernel in PAIRS else GRAPHS, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", sampled([*PAIRS, FullyConnectedThumb1], 2))
def test_without_assembly(kernel: type[Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
    _check(kernel, (RUNS if kernel in PAIRS else GRAPHS)[::2], monkeypatch, assembly=False)


@pytest.mark.parametrize("share", [0.0, 1 / 64, 1 / 8])
def test_rests_take_little_flash(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, FullyConnectedPairsThumb1.name)
    avoid(monkeypatch, lambda kernel: ResourceTradeoff.DUPLICATED_WEIGHTS in kernel.trades)
    monkeypatch.setattr(fully_connected_pairs, "RESTS_SHARE", share)
    graph = graphs.fully_connected_graph(256, 16, largest=45)
    constants = compile_graph(graph, target.load("cortex-m0plus")).layers[0].call.constants
    # Shorter runs need none.
    assert ("rests" in constants) == (share == 1 / 8)
    if "rests" in constants:
        # Of each unit a count, of each rest a place and a weight.
        assert constants["rests"].array.nbytes - 2 * 16 <= share * 256 * 16


def test_words_of_units() -> None:
    matrix = np.random.default_rng(0).integers(-128, 128, (10, 5)).astype(np.int8)
    words = fully_connected_pairs.pack_words(matrix, 8)
    assert words.shape == (2, 5, 2)
    assert words.dtype == np.dtype("<u4")
    lanes = words.view(np.uint8).astype(np.int16) - 128
    # Of each word, units 2, 0, 3 and 1 of its four.
    assert np.array_equal(lanes[0, 3], matrix[[2, 0, 3, 1, 6, 4, 7, 5], 3])
    assert np.array_equal(lanes[1, 4], [0, matrix[8, 4], 0, matrix[9, 4], 0, 0, 0, 0])


@pytest.mark.parametrize("saturated", [False, True])
def test_arithmetic_of_pairs(saturated: bool) -> None:
    """What the inner loop does, in 32 bits, against plain sums."""
    rng = np.random.default_rng(1)
    length = 2 if saturated else 12
    matrix = (
        rng.choice([-127, 127], (4, length)) if saturated else rng.integers(-21, 22, (4, length))
    ).astype(np.int8)
    x = rng.choice([-128, 127], length) if saturated else rng.integers(-128, 128, length)
    words = fully_connected_pairs.pack_words(matrix, 4)[0, :, 0].astype(np.int64)
    start = (1 << 15) - 0x00800080 * int(x.sum())
    odd = (start + (x * (words >> 8 & 0x00FF00FF)).sum()) % (1 << 32)
    even = (257 * start + (x * words).sum() - (odd << 8)) % (1 << 32)
    pairs = (
        [(int(s) & 0xFFFF) - (1 << 15) for s in (odd, even)],
        [int(np.int32(np.uint32(s))) >> 16 for s in (odd, even)],
    )
    assert np.array_equal(np.array(pairs).T.reshape(-1), matrix.astype(np.int64) @ x)


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("kernel", sampled([*PAIRS, FullyConnectedThumb1], 2))
def test_cost(kernel: type[Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        graphs.fully_connected_graph(*size, largest=largest)
        for size, largest in (((128, 64), 127), ((640, 8), 20), ((64, 12), 40), ((63, 3), 5))
    ]
    for name, estimated, counted in measured(_check(kernel, cases, monkeypatch)):
        assert estimated == pytest.approx(counted, rel=0.15), name
