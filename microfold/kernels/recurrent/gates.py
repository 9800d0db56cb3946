"""Gate products of an integer LSTM cell: order of the weights, and requantisation to int16."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Array, DType, Quant
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import mul_hi
from microfold.kernels.requantize.int16_sums import (
    LARGEST_SHIFT,
    SMALLEST_SHIFT,
    once_records,
)
from microfold.kernels.requantize.pre_shifted_accumulator import (
    SmladRequantization,
    plan_smlad_requantization,
)
from microfold.ops.recurrent.lstm_integer import gate_multipliers

GATES = 4


def by_unit(rows: Array) -> Array:
    """Reorder rows of gates, [4 * units, ...], to [units, 4, ...]."""
    return np.ascontiguousarray(rows.reshape(GATES, -1, *rows.shape[1:]).swapaxes(0, 1))


class GateMatrix(Struct, frozen=True, eq=False):
    """Weights of all gates, by unit, with the bounds of their sums.

    Attributes:
        weights: int8 [units, 4, inputs].
        biases: int64 [units, 4], with the zero point of the other operand folded in.
        low, high: smallest and largest sum, int64 [units, 4].
        multipliers: the reference's mantissas and shifts, int64 [4]; None if a gate has several.
    """

    weights: Array
    biases: Array
    low: Array
    high: Array
    multipliers: tuple[Array, Array] | None

    @staticmethod
    def of(dtype: DType, x: Quant, weights: Quant, array: Array, bias: Array | None) -> GateMatrix:
        """Return the matrix of an operator's weights.

        Args:
            dtype, x: type and quantisation of the other operand.
            weights: quantisation of the weights.
            array: the weights [4 * units, inputs].
            bias: integers [4 * units].
        """
        biases = mul_hi.fold_zero_point(array, bias, x.zero_point)
        low, high = mul_hi.accumulator_bounds(array, biases, *dtype.range)
        mantissas, shifts = (by_unit(m).astype(np.int64) for m in gate_multipliers(x, weights, len(array)))
        alike = bool((mantissas == mantissas[0]).all() and (shifts == shifts[0]).all())
        return GateMatrix(
            by_unit(array),
            by_unit(biases),
            by_unit(low),
            by_unit(high),
            (mantissas[0], shifts[0]) if alike else None,
        )

    @property
    def overflows(self) -> bool:
        """Whether a sum may exceed 32 bits."""
        low, high = DType.INT32.range
        return int(self.low.min()) < low or int(self.high.max()) > high


def _multipliers(matrices: Sequence[GateMatrix]) -> tuple[Array, Array]:
    """Return mantissas and shifts of all gates of all matrices."""
    multipliers = [m.multipliers for m in matrices if m.multipliers is not None]
    mantissas, shifts = (np.concatenate(parts) for parts in zip(*multipliers, strict=True))
    return mantissas, shifts


def _extremes(matrices: Sequence[GateMatrix]) -> tuple[Array, Array]:
    """Return the smallest and largest sum of each gate of each matrix."""
    low = np.concatenate([matrix.low.min(axis=0) for matrix in matrices])
    return low, np.concatenate([matrix.high.max(axis=0) for matrix in matrices])


def plan_int8(matrices: Sequence[GateMatrix]) -> tuple[str, list[Array]]:
    """Plan one form of requantisation for matrices of int8 cells; records int32 [4, 4] without biases."""
    mantissas, shifts = _multipliers(matrices)
    none = np.zeros(len(mantissas), np.int64)
    if any(matrix.overflows for matrix in matrices):
        plan = mul_hi.wrapped_requantization(none, mantissas, shifts, 0)
    else:
        lowest = DType.INT16.range[0]
        plan = mul_hi.plan_requantization(none, _extremes(matrices), mantissas, shifts, 0, lowest)
    return plan.form.value, np.split(plan.records, len(matrices))


def plan_smlad(matrices: Sequence[GateMatrix]) -> SmladRequantization:
    """Plan requantisation for matrices of int8 cells, with one common shift if possible; rows are gates."""
    mantissas, shifts = _multipliers(matrices)
    none = np.zeros(len(mantissas), np.int64)
    largest = max(1, -int(shifts.min()))
    plan = plan_smlad_requantization(
        none[:, None],
        none,
        _extremes(matrices),
        (mantissas, shifts),
        0,
        DType.INT16.range,
        common=True,
        shifts=range(largest + 1, largest + 4),
    )
    if plan.shift:
        return plan
    general = np.stack([none, mantissas, none, shifts], axis=1).astype(np.int32)
    return replace(plan, left=none, records=general)


def wide_records(matrices: Sequence[GateMatrix]) -> list[Array]:
    """Return the records of int16 cells for the reference's single rounding, int32 [4, 4], without biases."""
    found: list[Array] = []
    for matrix in matrices:
        assert matrix.multipliers is not None
        pairs = zip(*(part.tolist() for part in matrix.multipliers), strict=True)
        found.append(np.concatenate([product_sum.wide_record(0, pair) for pair in pairs]))
    return found


def plan_int16(matrices: Sequence[GateMatrix]) -> tuple[str, list[Array]]:
    """Plan one form of `int16_sums` for matrices of int16 cells, and their records.

    Returns:
        ``once`` if sums fit 32 bits and shifts are in range, else ``wide``; and int32 [4, 4] for each matrix.
    """
    wide = wide_records(matrices)
    shifts = np.concatenate([records[:, 3] for records in wide])
    fits = int(shifts.min()) >= SMALLEST_SHIFT and int(shifts.max()) <= LARGEST_SHIFT
    if not fits or any(matrix.overflows for matrix in matrices):
        return "wide", wide
    return "once", [once_records(records) for records in wide]
