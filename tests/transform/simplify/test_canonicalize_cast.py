"""Casts merge, go, and move to where elements are narrow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.transform.simplify.canonicalize_cast import canonicalize_cast, merged_differs
from tests.transform.check import check_declined, check_rewrite

TYPES = [dtype for dtype in DType if dtype is not DType.INT4]


def numbers(dtype: DType) -> Array:
    """Every number of an 8- or 16-bit type; of wider ones those where something might go wrong."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.itemsize <= 2:
        whole = np.arange(1 << (8 * dtype.itemsize)).astype(f"uint{8 * dtype.itemsize}").view(dtype.numpy)
        return whole if dtype.is_integer else whole[~np.isnan(whole)]
    corners = [sign * (2.0**power + step) for power in range(64) for sign in (-1, 1) for step in (-1, 0, 1)]
    if dtype.is_float:
        return np.array([*corners, 0.5, -0.5, 1e-30, 1.5, 1e30, -1e30, 65519.0, 1 / 3]).astype(np.float32)
    low, high = dtype.range
    return np.array([int(n) for n in corners if low <= int(n) <= high], dtype.numpy)


def cast(x: Array, dtype: DType) -> Array:
    return Cast(dtype).reference(Tensor(TensorType(DType(x.dtype.name), x.shape), x))


@pytest.mark.parametrize("first", TYPES)
def test_the_rule_is_right_and_misses_little(first: DType) -> None:
    x = numbers(first)
    for middle, last in itertools.product(TYPES, TYPES):
        equal = np.array_equal(cast(cast(x, middle), last), cast(x, last))
        if DType.FLOAT16 in (first, last) and not (first.is_float and last.is_float):
            # No kernel has the merged one.
            assert merged_differs(first, middle, last) is not None
        elif merged_differs(first, middle, last) is None:
            assert equal, (first, middle, last)
        elif middle.is_integer and first.is_integer:
            assert not equal or last is DType.BOOL, (first, middle, last)


def test_a_cast_of_a_cast() -> None:
    check_rewrite(
        canonicalize_cast,
        """
        graph @g(%x: int8[4] q(0.1, 3), %i: int32[4]) -> (%y, %z) {
          %a: int32[4] = cast(%x) {dtype=int32}
          %y: float32[4] = cast(%a) {dtype=float32}
          %b: int16[4] = cast(%i) {dtype=int16}
          %z: int8[4] = cast(%b) {dtype=int8}
        }
        """,
        """
        graph @g(%x: int8[4] q(0.1, 3), %i: int32[4]) -> (%y, %z) {
          %y: float32[4] = cast(%x) {dtype=float32}
          %z: int8[4] = cast(%i) {dtype=int8}
        }
        """,
    )


def test_back_and_forth() -> None:
    check_rewrite(
        canonicalize_cast,
        """
        graph @g(%x: uint8[4]) -> (%y) {
          %a: float32[4] = cast(%x) {dtype=float32}
          %y: uint8[4] = cast(%a) {dtype=uint8}
        }
        """,
        """
        graph @g(%x: uint8[4]) -> (%x) {
        }
        """,
    )


def test_movements_move_narrow_elements() -> None:
    check_rewrite(
        canonicalize_cast,
        """
        graph @g(%x: int8[2,4]) -> (%y) {
          %a: float32[2,4] = cast(%x) {dtype=float32}
          %b: float32[4,2] = transpose(%a) {permutation=(1, 0)}
          %c: float32[2,2] = strided_slice(%b) {begin=(0, 0), size=(2, 2), strides=(2, 1)}
          %d: float32[4] = reshape(%c) {shape=(4,)}
          %y: int32[4] = cast(%d) {dtype=int32}
        }
        """,
        """
        graph @g(%x: int8[2,4]) -> (%y) {
          %a: int8[4,2] = transpose(%x) {permutation=(1, 0)}
          %b: int8[2,2] = strided_slice(%a) {begin=(0, 0), size=(2, 2), strides=(2, 1)}
          %c: int8[4] = reshape(%b) {shape=(4,)}
          %y: int32[4] = cast(%c) {dtype=int32}
        }
        """,
    )


def test_narrowing_goes_first() -> None:
    check_rewrite(
        canonicalize_cast,
        """
        graph @g(%x: int32[2,4]) -> (%y) {
          %a: int32[4,2] = transpose(%x) {permutation=(1, 0)}
          %y: bool[4,2] = cast(%a) {dtype=bool}
        }
        """,
        """
        graph @g(%x: int32[2,4]) -> (%y) {
          %a: bool[2,4] = cast(%x) {dtype=bool}
          %y: bool[4,2] = transpose(%a) {permutation=(1, 0)}
        }
        """,
    )


@pytest.mark.parametrize(
    ("types", "reason"),
    [
        (("float32", "int32", "float32"), "int32 does not hold every float32"),
        (("float32", "float16", "float32"), "float16 does not hold every float32"),
        (("int8", "float32", "uint8"), "int8 wraps in uint8, float32 saturates"),
        (("int32", "float32", "int32"), "float32 does not hold every int32"),
        (("int16", "int8", "int32"), "int8 does not hold every int16"),
        (("int32", "bool", "int8"), "bool does not hold every int32"),
    ],
)
def test_lossy_casts(types: tuple[str, str, str], reason: str) -> None:
    first, middle, last = types
    check_declined(
        canonicalize_cast,
        f"""
        graph @g(%x: {first}[4]) -> (%y) {{
          %a: {middle}[4] = cast(%x) {{dtype={middle}}}
          %y: {last}[4] = cast(%a) {{dtype={last}}}
        }}
        """,
        reason,
    )


def test_a_cast_value_that_is_read_twice() -> None:
    check_declined(
        canonicalize_cast,
        """
        graph @g(%x: int8[2,4]) -> (%y, %a) {
          %a: float32[2,4] = cast(%x) {dtype=float32}
          %y: float32[4,2] = transpose(%a) {permutation=(1, 0)}
        }
        """,
        "other readers",
    )
