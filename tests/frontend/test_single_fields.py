"""One field of a valid file changed: refused with a reason, or compiled to what the reference computes."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

import microfold
from microfold.compiler import compile_graph
from microfold.errors import MicrofoldError, UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.graph import Graph, verify
from microfold.ir.interpret import Interpreter
from microfold.ir.types import TensorType
from microfold.target import load
from tests.frontend import fields
from tests.frontend.mutations import semantic_positions

NAMES = [
    f"ops/{name}"
    for name in (
        "conv_dil_int8", "dw_m2s2_int8", "conv_int16x8", "fc_int8", "tconv_same_int8", "avgpool2_int8",
        "maxpool3same_f32", "add_bcast_int8", "mul_f32", "softmax_int8", "mean_hw_int8", "pad_int8",
        "sslice_int8", "split_int8", "pack_int8", "unpack_int8", "gather_f32", "resize_bil_int8", "tile_f32",
        "s2b_f32", "s2d_int8", "transpose_int8", "argmax_f32", "quant_dq_int8", "prelu_f32",
    )
]  # fmt: skip
INTEGERS = (
    -(1 << 31),
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    16,
    17,
    127,
    255,
    256,
    4097,
    65536,
    1 << 24,
    (1 << 31) - 1,
)
FLOATS = (0.0, -1.0, 1e-38, 1e-12, 0.004, 0.9, 3.0, 1e12, 1e38, float("inf"), float("nan"))
LARGEST = 1 << 16  # elements of what is run


@st.composite
def changed_files(draw: st.DrawFn) -> bytes:
    """A small model with another byte, integer or real number in a place that means something."""
    data = bytearray(fields.made(draw(st.sampled_from(NAMES))))
    position = draw(st.sampled_from(semantic_positions(bytes(data))))
    kind = draw(st.sampled_from("bif"))
    if kind == "b":
        data[position] = draw(st.integers(0, 255))
    elif kind == "i":
        struct.pack_into("<i", data, position, draw(st.sampled_from(INTEGERS)))
    else:
        struct.pack_into("<f", data, position, draw(st.sampled_from(FLOATS)))
    return bytes(data)


def imported(data: bytes) -> Graph:
    """The graph of a file that is not refused."""
    try:
        graph = import_model(data)
    except MicrofoldError:
        reject()
    verify(graph)
    return graph


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(changed_files())
def test_refused_or_compiled(data: bytes) -> None:
    graph = imported(data)
    with contextlib.suppress(UnsupportedModelError):  # no kernel
        compile_graph(graph, load("cortex-m4"))


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(changed_files(), st.integers(0, 1 << 30))
def test_compiled_to_what_the_reference_computes(data: bytes, seed: int) -> None:
    graph = imported(data)
    assume(sum(value.type.size for node in graph.nodes for value in node.outputs) < LARGEST)
    try:
        session, interpreter = microfold.compile(graph), Interpreter(graph)
    except UnsupportedModelError:  # no kernel
        reject()
    rng = np.random.default_rng(seed)
    for _ in range(3):
        inputs = [_random(rng, value.type) for value in graph.inputs]
        for ours, expected in zip(session.run(*inputs), interpreter.run(*inputs), strict=True):
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5 * _largest(expected))
            else:
                np.testing.assert_array_equal(ours, expected)


def _random(rng: np.random.Generator, type: TensorType) -> np.ndarray:
    if type.dtype.is_float:
        return rng.standard_normal(type.shape).astype(type.dtype.numpy)
    low, high = type.dtype.range if type.dtype.numpy.itemsize <= 2 and type.dtype.is_integer else (0, 1)
    return rng.integers(low, high + 1, type.shape).astype(type.dtype.numpy)


def _largest(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0
