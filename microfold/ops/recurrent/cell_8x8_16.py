"""LiteRT's LSTM cell with int8 activations and weights, and 16-bit intermediate values."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from microfold.arithmetic import fixed_point_16, numerics
from microfold.arithmetic.fixed_point import inverse_sqrt
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.accumulate import centred, exact_int

GATE_BITS = 3  # integer bits of the gates' values
MEAN_BITS = 10  # fraction bits of a mean of layer normalisation
NORM_SHIFT = 12  # fraction bits of a gate's values after layer normalisation
LARGEST_CELL_EXPONENT, SMALLEST_CELL_EXPONENT = -9, -15
_INT8, _INT16 = DType.INT8.range, DType.INT16.range
_multiplier = partial(numerics.quantize_multiplier, limit=numerics.SMALL_MULTIPLIER)
_POWER_TOLERANCE = 1e-3  # tolerance of the binary logarithm of a cell's scale


class GateParameters(NamedTuple):
    """Constants of one gate.

    Attributes:
        input, recurrent: multipliers of the products with x and with hidden.
        peephole: multiplier of the products with the cell; None without a peephole.
        norm: multiplier of normalised values; None without layer normalisation.
        variance_guard: replaces a variance below 1.
    """

    input: Multiplier
    recurrent: Multiplier
    peephole: Multiplier | None
    norm: Multiplier | None
    variance_guard: int


class CellParameters(NamedTuple):
    """Constants of the arithmetic after the gates.

    Attributes:
        exponent: binary logarithm of the cell's scale.
        limit: limit of the cell's magnitude; None if it is not clipped.
        units: multiplier of ``o * tanh(cell)``.
        projection: multiplier of the projection's products; None without a projection.
        projection_limit: limit of the magnitude of hidden's integers; None if they are not clipped.
    """

    exponent: int
    limit: int | None
    units: Multiplier
    projection: Multiplier | None
    projection_limit: int | None


def _scale(type: TensorType | ElementType) -> np.float32:
    assert type.quant is not None
    return np.float32(type.quant.scale)


def _limit(clip: float, scale: np.float32, largest: int) -> int | None:
    """Return a clip in integers; None if there is no clip, or if it is less than 1."""
    return int(min(np.float32(clip) / scale, np.float32(largest))) or None if clip > 0 else None


def cell_exponent(scale: float) -> int:
    """Return the exponent of the power of two that approximates the scale of a cell.

    Raises:
        TypeRuleError: the scale is not a power of two, or the reference has no tanh for it.
    """
    logarithm = np.log(np.float32(scale)) * np.float32(1 / np.log(np.float32(2)))
    exponent = numerics.round_half_away(float(logarithm))
    require(
        abs(logarithm - exponent) < _POWER_TOLERANCE
        and SMALLEST_CELL_EXPONENT <= exponent <= LARGEST_CELL_EXPONENT,
        f"lstm_8x8_16: the cell's scale must be a power of two from 2^{SMALLEST_CELL_EXPONENT} to "
        f"2^{LARGEST_CELL_EXPONENT}; it is {scale:g}",
    )
    return exponent


def cell_parameters(
    cell: TensorType,
    hidden: TensorType,
    units: ElementType,
    out: ElementType,
    projection: TensorType | None,
    clips: tuple[float, float],
) -> CellParameters:
    """Return the constants of the arithmetic after the gates.

    Args:
        clips: clips of the cell and of the projection; 0 for none.

    Raises:
        TypeRuleError: no constants represent the scales.
    """
    units_scale = 2.0**-15 / float(_scale(units)) * 2.0**-15
    require(units_scale < 1, f"lstm_8x8_16: the scale of units must be above 2^-30; it is {_scale(units):g}")
    product = None
    if projection is not None:
        product = _multiplier(float(_scale(projection) * _scale(units) / _scale(hidden)))
    return CellParameters(
        cell_exponent(float(_scale(cell))),
        _limit(clips[0], _scale(cell), _INT16[1]),
        _multiplier(float(np.float32(units_scale))),
        product,
        _limit(clips[1], _scale(out), _INT8[1]) if projection is not None else None,
    )


def gate_parameters(
    scale: float,
    x: tuple[float, float],
    hidden: tuple[float, float],
    peephole: tuple[float, int] | None,
    norm: float | None,
) -> GateParameters:
    """Return the constants of a gate. Its scales are multiplied and divided in float32, as in the reference.

    Args:
        scale: scale of the sum of products.
        x, hidden: scales of the weights and of their operand.
        peephole: scale of the weights, and exponent of the cell's scale.

    Raises:
        TypeRuleError: no constants represent the scales.
    """

    def effective(factors: tuple[float, float]) -> Multiplier:
        return _multiplier(float(np.float32(factors[0]) * np.float32(factors[1]) / np.float32(scale)))

    looking = None
    if peephole is not None:
        weight, exponent = peephole
        real = 2.0**exponent * weight / scale
        require(
            real < 1,
            f"lstm_8x8_16: the scales of a peephole and of the cell must have a product below that of the "
            f"gate; they are {weight:g}, 2^{exponent} and {scale:g}",
        )
        looking = _multiplier(float(np.float32(real)))
    require(
        norm is None or norm < 0.125,
        f"lstm_8x8_16: scales of layer normalisation must be below 0.125; one is {norm}",
    )
    return GateParameters(
        effective(x),
        effective(hidden),
        looking,
        _multiplier(norm) if norm is not None else None,
        max(1, int(np.float32(10000) * np.float32(norm))) if norm is not None else 0,
    )


def row_scales(quant: Quant | None, parts: int) -> tuple[float, ...]:
    """Return the scales of `parts` equal parts of a matrix's rows; the rows of a part share a scale."""
    assert quant is not None
    scales = quant.scales if quant.axis is not None else quant.scales * parts
    return scales[:: len(scales) // parts]


def layer_norm(gate: Array, coefficients: Array, bias: Array, parameters: GateParameters) -> Array:
    """Return a gate [batch, units], normalised over its units.

    Mean and variance are truncated. The inverse of the number of units is also truncated, so that variances
    can be too small, or negative. Products with coefficients wrap around.
    """
    assert parameters.norm is not None
    units = gate.shape[1]
    mean = _truncated(gate.sum(axis=1) << MEAN_BITS, units)
    squares = (gate * gate).sum(axis=1) * ((1 << 2 * MEAN_BITS) // units)
    variance = _truncated(squares - mean * mean, 1 << 2 * MEAN_BITS)
    mantissas, shifts = inverse_sqrt(np.where(variance < 1, parameters.variance_guard, variance))
    centred_gate = (gate << MEAN_BITS) - mean[:, None]
    normal = numerics.multiply_by_quantized_multiplier(centred_gate, mantissas[:, None], shifts[:, None])
    weighted = (normal.astype(np.int64) * coefficients + bias).astype(np.int32).astype(np.int64)
    half = 1 << (MEAN_BITS - 1)
    rounded = _truncated(weighted + np.where(weighted > 0, half, -half), 1 << MEAN_BITS)
    mantissa, shift = parameters.norm
    return np.clip(_multiplied(rounded, Multiplier(mantissa, shift + NORM_SHIFT)), *_INT16)


def _truncated(x: Array, divisor: int) -> Array:
    """Return a quotient, rounded towards zero."""
    return np.sign(x) * (np.abs(x) // divisor)


def _multiplied(x: Array, multiplier: Multiplier) -> Array:
    return numerics.multiply_by_quantized_multiplier(x, *multiplier).astype(np.int64)


class Gate(Struct, frozen=True, eq=False):
    """Gate with its weights.

    Attributes:
        input_weights, recurrent_weights: float64 [units, inputs].
        bias: int64 [units]; added to the products with x, or after layer normalisation.
        peephole: int64 [1 or batch, units]; None without a peephole.
        rounded_up: number of units, from the first on, whose products with the peephole round ties up.
        norm: int64 [units]; None without layer normalisation.
    """

    input_weights: Array
    recurrent_weights: Array
    bias: Array
    peephole: Array | None
    rounded_up: int
    norm: Array | None
    parameters: GateParameters

    def sums(self, x: Array, hidden: Array, cell: Array) -> Array:
        """Return the gate's values [batch, units] before its function; `x` and `hidden` are centred."""
        known = self.parameters
        own = exact_int(x @ self.input_weights.T) + (self.bias if self.norm is None else 0)
        total = np.clip(_multiplied(own.astype(np.int32), known.input), *_INT16)
        recurrent = exact_int(hidden @ self.recurrent_weights.T).astype(np.int32)
        total = np.clip(total + _multiplied(recurrent, known.recurrent), *_INT16)
        if self.peephole is not None:
            total = np.clip(total + self._looked_up(self.peephole * cell), *_INT16)
        return total if self.norm is None else layer_norm(total, self.norm, self.bias, known)

    def _looked_up(self, products: Array) -> Array:
        """Return scaled products of cells [batch, units] with a peephole."""
        assert self.parameters.peephole is not None
        mantissa, shift = self.parameters.peephole
        high = numerics.saturating_rounding_doubling_high_mul(products, mantissa).astype(np.int64)
        away = numerics.rounding_divide_by_pot(high, -shift)
        up = (high + ((1 << -shift) >> 1)) >> -shift
        return np.where(np.arange(products.shape[1]) < self.rounded_up, up, away)


class Cell8x8To16(Struct, frozen=True, eq=False):
    """Cell with its weights.

    Attributes:
        gates: gates i, f, g and o by name; without i, it is ``1 - f``.
        x, hidden: types of the gates' operands.
        projection: weights and bias; None without a projection.
        units: element type of the results of the units.
    """

    gates: dict[str, Gate]
    x: TensorType
    hidden: TensorType
    units: ElementType
    projection: tuple[Array, Array] | None
    parameters: CellParameters

    def step(self, x: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
        """Return both states after one step."""
        inputs = centred(Tensor(self.x, x)), centred(Tensor(self.hidden, hidden))
        old, known = cell.astype(np.int64), self.parameters

        def sigmoid(name: str, seen: Array) -> Array:
            return fixed_point_16.logistic(self.gates[name].sums(*inputs, seen), GATE_BITS)

        f = sigmoid("f", old)
        g = fixed_point_16.tanh(self.gates["g"].sums(*inputs, old), GATE_BITS)
        i = sigmoid("i", old) if "i" in self.gates else fixed_point_16.MAX - f
        kept = numerics.rounding_divide_by_pot(f * old, 15).astype(np.int64)
        added = numerics.rounding_divide_by_pot(i * g, 30 + known.exponent)
        new = np.clip(kept + added, *_INT16)
        if known.limit is not None:
            new = np.clip(new, -known.limit, known.limit)
        shown = sigmoid("o", new) * fixed_point_16.tanh(new, 15 + known.exponent)
        return self._results(_multiplied(shown, known.units)), new.astype(np.int16)

    def _results(self, shown: Array) -> Array:
        """Return hidden from the results of the units."""
        known = self.parameters
        assert self.units.quant is not None and self.hidden.quant is not None
        zero = self.units.quant.zero_point
        if self.projection is None:
            return numerics.clamp(shown + zero, *_INT8, DType.INT8)
        # The reference uses the opposite sign of the zero point. This cancels out unless the units saturate.
        weights, bias = self.projection
        sums = exact_int((np.clip(shown - zero, *_INT8) + zero) @ weights.T) + bias
        assert known.projection is not None
        projected = _multiplied(sums.astype(np.int32), known.projection) + self.hidden.quant.zero_point
        limit = known.projection_limit
        result = numerics.clamp(projected, *_INT8, DType.INT8)
        return result if limit is None else np.clip(result, -limit, limit).astype(np.int8)
