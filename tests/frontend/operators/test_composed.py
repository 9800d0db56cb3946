"""Operators that are put together from others, against LiteRT: CONV_3D, DILATE, BUCKETIZE …"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tflite
from flatbuffers import flexbuffers

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.kernels.portable import check
from tests.kernels.random_networks import merge
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

RNG = np.random.default_rng(0)
RELU6 = tflite.ActivationFunctionType.RELU6


def _constant(w: Writer, array: Array) -> int:
    return w.tensor(array.shape, array.dtype.str[1:], data=array)


def _conv_3d(
    padding: int, strides: tuple[int, int, int], dilations: tuple[int, int, int], result: int
) -> bytes:
    w = Writer()
    filters = RNG.standard_normal((3, 2, 3, 2, 4)).astype(np.float32)
    bias = RNG.standard_normal(4).astype(np.float32)
    operands = [w.input((2, 6, 7, 8, 2), "f4"), _constant(w, filters), _constant(w, bias)]
    w.operator(
        "CONV_3D",
        operands,
        w.tensor((2, result, 1, 1, 4), "f4"),
        "Conv3DOptions",
        Padding=padding,
        **dict(zip(("StrideD", "StrideH", "StrideW"), strides, strict=True)),
        **dict(zip(("DilationDFactor", "DilationHFactor", "DilationWFactor"), dilations, strict=True)),
        FusedActivationFunction=RELU6,
    )
    return w.pack()


def _conv_3d_transpose(padding: int, strides: tuple[int, int, int], shape: tuple[int, ...]) -> bytes:
    w = Writer()
    filters = RNG.standard_normal((3, 3, 2, 4, 2)).astype(np.float32)
    size = np.array((2, *shape, 4), np.int32)
    operands = [_constant(w, size), _constant(w, filters), w.input((2, 3, 4, 5, 2), "f4")]
    w.operator(
        "CONV_3D_TRANSPOSE",
        operands,
        w.tensor(size.tolist(), "f4"),
        "Conv3DOptions",
        Padding=padding,
        **dict(zip(("StrideD", "StrideH", "StrideW"), strides, strict=True)),
        DilationDFactor=1,
        DilationHFactor=1,
        DilationWFactor=1,
    )
    return w.pack()


def _dilate() -> bytes:
    w = Writer()
    steps, fill = _constant(w, np.array([2, 1, 3], np.int32)), _constant(w, np.array(-7, np.float32))
    w.operator("DILATE", [w.input((2, 3, 4), "f4"), steps, fill], w.tensor((3, 3, 10), "f4"), "DilateOptions")
    return w.pack()


def _bucketize(dtype: str) -> bytes:
    w = Writer()
    boundaries = w.builder.CreateNumpyVector(np.array([-1, 0, 0.5, 2], np.float32))
    w.operator(
        "BUCKETIZE",
        [w.input((3, 5), dtype)],
        w.tensor((3, 5), "i4"),
        "BucketizeOptions",
        Boundaries=boundaries,
    )
    return w.pack()


def _sparse_to_dense(scalar: bool) -> bytes:
    w = Writer()
    positions = _constant(w, np.array([[0, 1], [2, 0], [2, 3]], np.int32))
    operands = [positions, _constant(w, np.array([3, 4], np.int32)), w.input(() if scalar else (3,), "f4")]
    operands.append(_constant(w, np.array(-1, np.float32)))
    w.operator("SPARSE_TO_DENSE", operands, w.tensor((3, 4), "f4"), "SparseToDenseOptions")
    return w.pack()


def _composite() -> bytes:
    """Of a name that means nothing; its subgraph adds, and multiplies."""
    w = Writer()
    x, y, z = w.input((4,), "f4"), w.input((4,), "f4"), w.tensor((4,), "f4")
    fields = {
        "Name": w.builder.CreateString("test.both"),
        "CompositeAttributes": w.builder.CreateByteVector(bytes(flexbuffers.Dumps({}))),
    }
    options = "StableHLOCompositeOptions"
    w.operator("STABLEHLO_COMPOSITE", [x, y], z, options, DecompositionSubgraphIndex=1, **fields)
    w.end_subgraph()
    a, b, total, product = (
        w.input((4,), "f4"),
        w.input((4,), "f4"),
        w.tensor((4,), "f4"),
        w.tensor((4,), "f4"),
    )
    w.operator("ADD", [a, b], total, "AddOptions", inner=True)
    w.operator("MUL", [total, b], product, "MulOptions")
    return w.pack()


CASES: dict[str, Callable[[], bytes]] = {
    "conv_3d_same": lambda: _conv_3d(0, (1, 2, 1), (1, 1, 1), 6),
    "conv_3d_valid": lambda: _conv_3d(1, (2, 1, 2), (1, 1, 1), 2),
    "conv_3d_dilated": lambda: _conv_3d(0, (1, 1, 1), (2, 1, 2), 6),
    "conv_3d_transpose_same": lambda: _conv_3d_transpose(0, (2, 2, 1), (6, 8, 5)),
    "conv_3d_transpose_valid": lambda: _conv_3d_transpose(1, (1, 2, 1), (5, 9, 6)),
    "dilate": _dilate,
    "bucketize": lambda: _bucketize("f4"),
    "bucketize_integers": lambda: _bucketize("i4"),
    "sparse_to_dense": lambda: _sparse_to_dense(False),
    "sparse_to_dense_of_one": lambda: _sparse_to_dense(True),
    "composite": _composite,
}


@pytest.mark.parametrize("name", CASES)
def test_as_litert(name: str) -> None:
    need_modules("ai_edge_litert")
    data = CASES[name]()
    graph = import_model(data)
    given = [(RNG.standard_normal(v.type.shape) * 2).astype(v.type.dtype.numpy) for v in graph.inputs]
    (ours,) = Interpreter(graph).run(*given)
    (index,) = oracle.operator_outputs(data)
    theirs = oracle.litert(data, [given], [index])[0][index]
    assert ours.shape == theirs.shape
    assert not oracle.difference(ours, theirs)


def test_their_code() -> None:
    check(merge([import_model(build()) for name, build in CASES.items() if name != "composite"]))


@pytest.mark.parametrize(
    ("positions", "size", "reason"),
    [
        (np.array([[1], [1]], np.int32), 3, r"positions must be distinct, and inside of \[3\]"),
        (np.array([[1], [3]], np.int32), 3, r"positions must be distinct, and inside of \[3\]"),
        (np.array([[1], [0]], np.float32), 3, r"it must have positions in a tensor; they are float32\[2,1\]"),
        (np.array([[1], [0]], np.int32), 0, "it must have positions in a tensor"),
    ],
)
def test_positions_that_are_refused(positions: Array, size: int, reason: str) -> None:
    w = Writer()
    operands = [_constant(w, positions), _constant(w, np.array([size], np.int32))]
    operands += [w.input((2,), "f4"), _constant(w, np.array(0, np.float32))]
    w.operator("SPARSE_TO_DENSE", operands, w.tensor((3,), "f4"), "SparseToDenseOptions")
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(w.pack())
