"""Quantisation with a scale computed from the values, for the activations of hybrid operators."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic.numerics import round_half_away_array
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType

# Rows with a smaller range count as zeros, because the inverse of their step could overflow float32.
SMALLEST_RANGE = np.float32(2.0**-100)


@register
class DynamicQuantize(Op, frozen=True):
    """float32 quantised to int8 minus the zero point, stored as int16, with a step for each index of axis 0.

    Each index of axis 0 (a row of a matrix, an image of a batch) is quantised separately: symmetrically to
    [-127, 127] by its largest magnitude, or to [-128, 127] by its range, extended to contain 0. The zero
    point is subtracted, so that real zero is 0. Results are the integers, within [-255, 255], and the steps,
    float32 [rows].

    The reference is LiteRT: `PortableSymmetricQuantizeFloats` and `PortableAsymmetricQuantizeFloats`
    (tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc). Its released wheel differs from
    this source: it computes the difference of the bounds in float32, and rounds before it adds the zero
    point.
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
    """Return integers, int16 [rows, elements], and steps, float32 [rows]."""
    quantize_row = _asymmetric if asymmetric else _symmetric
    results = [quantize_row(row) for row in rows]
    values = np.array([values for values, _ in results], np.int16)
    return values, np.array([step for _, step in results], np.float32)


def _symmetric(row: Array) -> tuple[Array, np.float32]:
    """Return the integers of one row, and its step."""
    largest = np.float32(np.abs(row).max(initial=0))
    if not largest >= SMALLEST_RANGE:
        return np.zeros(row.shape), np.float32(1)
    values = round_half_away_array(row * (np.float32(127) / largest))
    return np.clip(values, -127, 127), largest / np.float32(127)


def _asymmetric(row: Array) -> tuple[Array, np.float32]:
    """Return the integers of one row, and its step; the zero point is at the end with less rounding error."""
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
