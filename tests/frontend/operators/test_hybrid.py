"""Hybrid operators against LiteRT: every bit of their results, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tflite

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import trace_model
from microfold.ir.interpret import Interpreter
from tests import hybrid_models as hybrid
from tests import oracle
from tests.hybrid_models import Draw
from tests.kernels.portable import check
from tests.kernels.random_networks import merge
from tests.needs import need_modules
from tests.tflite_writer import Writer

Drawing = Callable[[np.random.Generator], Draw]
BOOLEANS = (False, True)


def _fully_connected(bits: int, per_channel: bool, asymmetric: bool) -> Drawing:
    def draw(rng: np.random.Generator) -> Draw:
        bias = bool(rng.integers(3))
        return hybrid.fully_connected(rng, bits, per_channel=per_channel, asymmetric=asymmetric, bias=bias)

    return draw


EXACT: dict[str, Drawing] = {
    **{
        f"fully connected, int{bits}, {per_channel=}, {asymmetric=}": _fully_connected(
            bits, per_channel, asymmetric
        )
        for bits in (8, 4, 2)
        for per_channel in BOOLEANS
        for asymmetric in BOOLEANS
    },
    **{
        f"convolution, int{bits}, scales {scales}": partial(hybrid.convolution, bits=bits, scales=scales)
        for bits in (8, 4)
        for scales in ("channel", "tensor", "equal")
    },
    "grouped convolution": partial(hybrid.convolution, groups=3),
    "depthwise convolution": partial(hybrid.convolution, depthwise=True),
    "depthwise convolution, scales equal": partial(hybrid.convolution, depthwise=True, scales="equal"),
    **{
        f"batch matmul, {adj_x=}, {adj_y=}, {asymmetric=}": partial(
            hybrid.batch_matmul, adj_x=adj_x, adj_y=adj_y, asymmetric=asymmetric
        )
        for adj_x in BOOLEANS
        for adj_y in BOOLEANS
        for asymmetric in BOOLEANS
    },
}


def both(draw: Draw, rng: np.random.Generator, reference: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
    """Our results of three calls, and LiteRT's."""
    need_modules("ai_edge_litert")
    traced = trace_model(draw.data)
    (index,) = oracle.operator_outputs(draw.data)
    calls = [[hybrid.activations(rng, draw.shape)] for _ in range(3)]
    theirs = oracle.litert(draw.data, calls, [index], reference)
    interpreter = Interpreter(traced.graph)
    return [(interpreter.run(*call)[0], result[index]) for call, result in zip(calls, theirs, strict=True)]


@pytest.mark.parametrize("kind", EXACT)
def test_bits_of_the_reference(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    for _ in range(6):
        for ours, theirs in both(EXACT[kind](rng), rng):
            np.testing.assert_array_equal(ours, theirs.reshape(ours.shape))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", EXACT)
def test_bits_of_many(kind: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        for ours, theirs in both(EXACT[kind](rng), rng):
            np.testing.assert_array_equal(ours, theirs.reshape(ours.shape))


def test_weights_in_blocks() -> None:
    """Rounded otherwise than by the kernel that decides, which adds up what a zero point takes off again."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        for ours, theirs in both(hybrid.blockwise(rng), rng, reference=False):
            assert not oracle.difference(ours, theirs)


def test_weights_of_two_bits_in_convolutions() -> None:
    """LiteRT reads them as floats: they mean what the same weights of eight bits mean."""
    packed, plain = (
        hybrid.convolution(np.random.default_rng(3), 2, scales="tensor", stored=stored) for stored in (2, 8)
    )
    x = hybrid.activations(np.random.default_rng(4), packed.shape)
    results = [Interpreter(trace_model(draw.data).graph).run(x)[0] for draw in (packed, plain)]
    np.testing.assert_array_equal(*results)


def test_activations_behind_blocks_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="LiteRT then ignores its fused activation"):
        trace_model(hybrid.blockwise(np.random.default_rng(0), "RELU").data)


def test_transposed_convolutions() -> None:
    """LiteRT rounds the last digits otherwise."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        for ours, theirs in both(hybrid.transposed_convolution(rng), rng):
            assert not oracle.difference(ours, theirs)


def test_c_of_transposed_convolutions() -> None:
    draws = [hybrid.transposed_convolution(np.random.default_rng(seed)) for seed in range(6)]
    check(merge([trace_model(draw.data).graph for draw in draws]))


@pytest.mark.parametrize("zero_point", [0, 128])
def test_weights_of_uint8_are_refused(zero_point: int) -> None:
    """LiteRT reads their bytes as int8, whatever the zero point is."""
    writer = Writer()
    weights = writer.tensor((2, 2, 2, 3), "u1", 0.1, zero_point, data=np.full((2, 2, 2, 3), 200))
    x, y = writer.input((1, 4, 4, 3), "f4"), writer.tensor((1, 3, 3, 2), "f4")
    options = {"Padding": tflite.Padding.VALID, "StrideH": 1, "StrideW": 1}
    bias = writer.tensor((2,), "f4", data=np.zeros(2))
    writer.operator("CONV_2D", [x, weights, bias], y, "Conv2DOptions", **options)
    with pytest.raises(UnsupportedModelError, match="uint8 weights require uint8 activations"):
        trace_model(writer.pack())
