"""TFLM_DECODE: compressed constants, against TFLM."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model, trace_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

SHAPE = (3, 4, 5)
Q = {"i1": 0.1, "i2": 0.01, "f4": None, "i4": None}
# A prefix code of three symbols, and its tables of one bit each: entries are (symbol?, bits, what).
CODE = {7: "0", -3: "10", 100: "11"}
ENTRIES = [(1, 1, 7), (0, 0, 1), (1, 1, -3), (1, 1, 100)]


def packed(bits: str) -> bytes:
    return np.packbits(np.array([int(bit) for bit in bits], np.uint8)).tobytes() + bytes(8)


def header(way: int, *parameters: int) -> bytes:
    return bytes([way, 1, 0, 0, 1, *parameters]).ljust(16, b"\0")


def model(dtype: str, encoded: bytes, ancillary: bytes, axis: int | None = None) -> bytes:
    """A sum of an input and of a decoded constant, which has a scale for each channel along an axis."""
    w = Writer()
    pair = [w.tensor((len(data),), "u1", data=np.frombuffer(data, np.uint8)) for data in (encoded, ancillary)]
    scale = Q[dtype] if axis is None else np.full(SHAPE[axis], Q[dtype])
    constant = w.tensor(SHAPE, dtype, scale, axis=axis or 0)
    w.operator("TFLM_DECODE", pair, constant, custom=b"", inner=True)
    if axis is None:
        w.operator(
            "ADD", [w.input(SHAPE, dtype, Q[dtype]), constant], w.tensor(SHAPE, dtype, Q[dtype]), "AddOptions"
        )
    else:
        w.operator("DEQUANTIZE", [constant], w.tensor(SHAPE, "f4"), "DequantizeOptions")
    return w.pack()


def looked_up(dtype: str, width: int, axis: int | None = None) -> tuple[bytes, bytes, Array]:
    rng = np.random.default_rng(width)
    stride, channels = (1 << width) - 1, 1 if axis is None else SHAPE[axis]
    table = rng.integers(-100, 100, (channels, stride)).astype(dtype)
    indices = rng.integers(0, stride, SHAPE)
    encoded = packed("".join(np.binary_repr(int(i), width) for i in indices.reshape(-1)))
    of = 0 if axis is None else np.arange(channels).reshape([-1 if k == axis else 1 for k in range(3)])
    return encoded, header(0, width, stride) + table.tobytes() + bytes(16), table[of, indices]


def filled(dtype: str) -> tuple[bytes, bytes, Array]:
    rng = np.random.default_rng(1)
    array = np.where(rng.random(SHAPE) < 0.6, 0, rng.integers(1, 100, SHAPE)).astype(dtype)
    encoded = packed("".join(str(int(n != 0)) for n in array.reshape(-1)))
    return encoded, header(2) + array[array != 0].tobytes() + bytes(16), array


def coded(dtype: str, wide: bool) -> tuple[bytes, bytes, Array]:
    rng = np.random.default_rng(2)
    array = rng.choice(list(CODE), SHAPE).astype(dtype)
    found, sizes = (31, 27) if wide else (15, 11)
    mask = 0xFFFF if wide else 0xFF
    numbers = [(symbol << found) | (bits << sizes) | (what & mask) for symbol, bits, what in ENTRIES]
    table = np.array(numbers, np.uint32 if wide else np.uint16).tobytes()
    encoded = packed("".join(CODE[int(n)] for n in array.reshape(-1)))
    return encoded + bytes(-len(encoded) % 4), header(1, int(wide)) + table + bytes(16), array


CASES = {
    **{
        f"table {dtype} {width}": (dtype, looked_up(dtype, width))
        for dtype, width in zip(Q, (4, 7, 1, 3), strict=True)
    },
    **{f"pruned {dtype}": (dtype, filled(dtype)) for dtype in Q},
    "code": ("i1", coded("i1", False)),
    "wide code": ("i1", coded("i1", True)),
    "wide code of int16": ("i2", coded("i2", True)),
}


def decoded(data: bytes) -> Array:
    """The first constant of the shape."""
    graph = import_model(data)
    return next(array for value, array in graph.constants.items() if value.type.shape == SHAPE)


@pytest.mark.parametrize("name", CASES)
def test_as_tflm(name: str) -> None:
    need_modules("tflite_micro")
    dtype, (encoded, ancillary, array) = CASES[name]
    data = model(dtype, encoded, ancillary)
    np.testing.assert_array_equal(decoded(data), array)
    given = np.zeros(SHAPE, dtype)
    (ours,) = Interpreter(import_model(data)).run(given)
    (index,) = oracle.compared_tensors(data, trace_model(data))
    theirs = oracle.tflm(data, [[given]], [index])[0][index]
    assert not oracle.difference(ours, theirs)


@pytest.mark.parametrize("axis", [0, 2])
def test_a_table_of_each_channel(axis: int) -> None:
    encoded, ancillary, array = looked_up("i1", 2, axis)
    np.testing.assert_array_equal(decoded(model("i1", encoded, ancillary, axis)), array)


@pytest.mark.parametrize(
    ("encoded", "ancillary", "reason"),
    [
        (packed("0" * 60), header(0, 0, 1), "60 indices of 0 bits"),
        (packed("0"), header(0, 4, 1), "60 indices of 4 bits must be in its 72 bits"),
        (packed("1" * 240), header(0, 4, 16) + bytes(8), "must have element 15; it has 8"),
        (packed("1" * 60), header(2) + bytes(30), "60 set, and 30 values"),
        (packed("1" * 60), header(3), "must be 0 to 2; it is 3"),
        (packed("1" * 60), b"\0" * 20, "16 bytes of version 1"),
        (b"\xff", coded("i1", False)[1], "its 8 bits end before element 4 of 60"),
        (packed("1" * 60), header(1, 0x70), "its table must have entry 255; it has 0"),
    ],
)
def test_what_tflm_would_read_beyond_its_end_is_refused(
    encoded: bytes, ancillary: bytes, reason: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(model("i1", encoded, ancillary))
