"""Quantisation whose scale follows from the values: what hybrid operators do to their activations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic.numerics import round_half_away_array
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.support.frozen import frozen

# Rows whose range is less count as zeros: the inverse of their step might leave float32.
SMALLEST_RANGE = np.float32(2.0**-100)


@register
@frozen
class DynamicQuantize(Op):
    """float32 to int8 steps less their zero point, held as int16, with a step for each index of axis 0.

    Whatever has one index along axis 0 (a row of a matrix, an image of a batch) is quantised by itself:
    symmetrically to [-127, 127] by its largest magnitude, or to [-128, 127] by its range, widened to hold 0.
    The zero point is taken off, so that real zero is 0. Results are the integers, within [-255, 255], and
    the steps, float32 [rows].

    As LiteRT does: `PortableSymmetricQuantizeFloats`, `PortableAsymmetricQuantizeFloats`
    (tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc), where the wheel takes the
    difference of the bounds in float32, and rounds before it adds the zero point.
    """

    name: ClassVar[str] = "dynamic_quantize"

    asymmetric: bool

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(
            x.dtype is DType.FLOAT32 and x.rank >= 1,
            f"dynamic_quantize: needs float32 with a first axis; the operand is {x}",
        )
        return TensorType(DType.INT16, x.shape), TensorType(DType.FLOAT32, x.shape[:1])

    def reference(self, x: Tensor) -> tuple[Array, Array]:
        values, steps = quantize_rows(x.data.reshape(x.type.shape[0], -1), asymmetric=self.asymmetric)
        return values.reshape(x.type.shape), steps


def quantize_rows(rows: Array, *, asymmetric: bool) -> tuple[Array, Array]:
    """Integers, int16 [rows, elements], and steps, float32 [rows]."""
    quantize_row = _asymmetric if asymmetric else _symmetric
    results = [quantize_row(row) for row in rows]
    values = np.array([values for values, _ in results], np.int16)
    return values, np.array([step for _, step in results], np.float32)


def _symmetric(row: Array) -> tuple[Array, np.float32]:
    """The integers of one row, and its step."""
    largest = np.float32(np.abs(row).max(initial=0))
    if not largest >= SMALLEST_RANGE:
        return np.zeros(row.shape), np.float32(1)
    values = round_half_away_array(row * (np.float32(127) / largest))
    return np.clip(values, -127, 127), largest / np.float32(127)


def _asymmetric(row: Array) -> tuple[Array, np.float32]:
    """The same, with the zero point on the side where its rounding costs less."""
    low, high = np.float32(row.min(initial=0)), np.float32(row.max(initial=0))
    if not high - low >= SMALLEST_RANGE:
        return np.zeros(row.shape), np.float32(1)
    exact = float(high - low) / 255
    below, above = float(low) / exact, float(high) / exact
    nearer = -128 - below if 128 + abs(below) < 127 + abs(above) else 127 - above
    zero_point = np.clip(round_half_away_array(np.asarray(nearer)), -128, 127)
    step = np.float32(exact)
    values = round_half_away_array(row * (np.float32(1) / step))
    return np.clip(values, -128 - zero_point, 127 - zero_point), step
