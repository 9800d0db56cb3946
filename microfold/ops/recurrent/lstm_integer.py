"""Quantised LSTM cell: int8 or int16 activations, int8 weights and an int16 cell."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import Array, DType, Quant, Tensor, TensorType
from microfold.ops import accumulate
from microfold.ops.elementwise.activations.logistic import Int16Scaling, logistic_int16, nearest_power_of_two
from microfold.ops.elementwise.activations.tanh import tanh_int16

GATE_SCALE = 2.0**-12  # scale of the gates' products
GATE_SCALING = Int16Scaling(3, 0)  # for logistic and tanh at this scale
_INT16 = DType.INT16.range


class IntegerCellParameters(NamedTuple):
    """Constants of the arithmetic after the gates.

    Attributes:
        forget: multiplier of ``f * cell``.
        input: multiplier of ``i * g``, to the cell's scale.
        hidden: multiplier of ``o * tanh(cell)``, to hidden's scale.
        tanh: scaling of the cell for its tanh.
        limit: limit of the cell's magnitude; None if it is not clipped.
    """

    forget: Multiplier
    input: Multiplier
    hidden: Multiplier
    tanh: Int16Scaling
    limit: int | None


def cell_parameters(hidden: Quant, cell: Quant, cell_clip: float) -> IntegerCellParameters:
    """Return the constants for these scales.

    Raises:
        TypeRuleError: the scales have no multiplier.
    """
    scale = cell.scale
    left = 15 + nearest_power_of_two(scale)[1] - 3
    limit = int(min(float(np.float32(cell_clip)) / scale, 32767.0)) if cell_clip > 0 else None
    return IntegerCellParameters(
        numerics.quantize_multiplier(2.0**-15),
        numerics.effective_multiplier([2.0**-30], scale, numerics.SMALL_MULTIPLIER),
        numerics.effective_multiplier([2.0**-30], hidden.scale, numerics.SMALL_MULTIPLIER),
        Int16Scaling(3 << left, 0) if left >= 0 else Int16Scaling(3, -left),
        limit,
    )


def gate_multipliers(x: Quant, weights: Quant, rows: int) -> tuple[Array, Array]:
    """Return mantissas and shifts of products with these weights, per row.

    Raises:
        TypeRuleError: the scales have no multiplier.
    """
    return accumulate.output_multipliers(x, weights, Quant.per_tensor(GATE_SCALE), rows)


def check_multipliers(x: TensorType, weights: Quant, recurrent: Quant, hidden: Quant, cell: Quant) -> None:
    """Check the type rule of a cell's scales.

    Raises:
        TypeRuleError: the scales have no multipliers.
    """
    assert x.quant is not None
    for given, scales in ((x.quant, weights.scales), (hidden, recurrent.scales)):
        largest = numerics.effective_multiplier(
            [given.scale, max(scales)], GATE_SCALE, numerics.SMALL_MULTIPLIER
        )
        if accumulate.has_wide_sums(x, None):
            accumulate.check_int16_multiplier("lstm", largest)
    cell_parameters(hidden, cell, 0)


def _products(
    x: Array, weights: Array, bias: Array | None, multipliers: tuple[Array, Array], wide: bool
) -> Array:
    """Return centred rows times weights, as int16 at `GATE_SCALE` in int64."""
    sums = accumulate.exact_int(x @ weights.T)
    if bias is not None:
        sums = sums + bias
    if wide:
        scaled = numerics.multiply_int64_by_quantized_multiplier(sums, *multipliers)
    else:
        scaled = numerics.multiply_by_quantized_multiplier(sums.astype(np.int32), *multipliers)
    return np.clip(scaled.astype(np.int64), *_INT16)


def _scaled(x: Array, multiplier: Multiplier) -> Array:
    return numerics.multiply_by_quantized_multiplier(x, *multiplier).astype(np.int64)


class IntegerCell(Struct, frozen=True, eq=False):
    """Cell with its weights.

    Attributes:
        input_products: computes the products of a sequence [steps, batch, inputs], bias included.
        hidden_products: computes the products of a state [batch, units].
        hidden: type of that state.
    """

    input_products: Callable[[Array], Array]
    hidden_products: Callable[[Array], Array]
    parameters: IntegerCellParameters
    hidden: TensorType

    @staticmethod
    def of(
        x: TensorType,
        input_weights: Tensor,
        recurrent_weights: Tensor,
        bias: Tensor,
        hidden: TensorType,
        cell: TensorType,
        cell_clip: float,
    ) -> IntegerCell:
        """Return the cell for an operator's operands."""
        assert cell.quant is not None and hidden.quant is not None

        def products(source: TensorType, weights: Tensor, bias: Array | None) -> Callable[[Array], Array]:
            assert source.quant is not None and weights.type.quant is not None
            multipliers = gate_multipliers(source.quant, weights.type.quant, weights.type.shape[0])
            zero_point, matrix = source.quant.zero_point, weights.data.astype(np.float64)
            wide = source.dtype is DType.INT16
            return lambda rows: _products(
                rows.astype(np.float64) - zero_point, matrix, bias, multipliers, wide
            )

        return IntegerCell(
            products(x, input_weights, bias.data),
            products(hidden, recurrent_weights, None),
            cell_parameters(hidden.quant, cell.quant, cell_clip),
            hidden,
        )

    def step(self, products: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
        """Return both states after one step, given the products of its input, [batch, 4 * units]."""
        gates = np.clip(products + self.hidden_products(hidden), *_INT16)
        logistic = partial(logistic_int16, scaling=GATE_SCALING)
        i, f, g, o = (part.astype(np.int64) for part in np.split(gates, 4, axis=-1))
        known, limit = self.parameters, self.parameters.limit
        kept = _scaled(logistic(f).astype(np.int64) * cell, known.forget)
        added = _scaled(logistic(i).astype(np.int64) * tanh_int16(g, GATE_SCALING), known.input)
        new = np.clip(np.clip(kept, *_INT16) + np.clip(added, *_INT16), *_INT16)
        if limit is not None:
            new = np.clip(new, -limit, limit)
        shown = tanh_int16(new, known.tanh).astype(np.int64) * logistic(o)
        assert self.hidden.quant is not None
        following = _scaled(shown, known.hidden) + self.hidden.quant.zero_point
        return numerics.clamp(following, *self.hidden.dtype.range, self.hidden.dtype), new.astype(np.int16)
