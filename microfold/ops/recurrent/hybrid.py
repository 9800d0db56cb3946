"""Shared parts of hybrid recurrent layers, whose activations are quantised in every step."""

from __future__ import annotations

import numpy as np

from microfold.ir.op import require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.accumulate import exact_int
from microfold.ops.elementwise.conversions.dynamic_quantize import quantize_rows
from microfold.ops.hybrid import MAX_DEPTH, weight_scales
from microfold.ops.recurrent.lstm_float import FloatCell


def check_weights(op: str, what: str, weights: TensorType, parts: int) -> None:
    """Check the type rule of weights that each row of activations is multiplied with.

    Args:
        what: name of the weights in messages.
        parts: number of equal parts of their rows, each with one scale.

    Raises:
        TypeRuleError: the weights are not int8 with zero point 0 and such scales.
    """
    quant = weights.quant
    require(
        weights.dtype is DType.INT8
        and quant is not None
        and quant.axis in (None, 0)
        and not any(quant.zero_points),
        f"{op}: {what} must be int8 with zero point 0 and one scale or scales along axis 0; got {weights}",
    )
    scales = weight_scales(weights, 0).reshape(parts, -1)
    require(
        bool((scales == scales[:, :1]).all()), f"{op}: {what} must have one scale for each of {parts} gates"
    )
    require(
        weights.shape[1] <= MAX_DEPTH,
        f"{op}: a sum can have at most {MAX_DEPTH} products; {what} have {weights.shape[1]}",
    )


def real(type: TensorType) -> TensorType:
    """Return the type of the real numbers that integers represent."""
    return TensorType(DType.FLOAT32, type.shape)


def product(rows: Array, weights: Tensor, *, asymmetric: bool) -> Array:
    """Return ``rows [N, K]`` times int8 ``weights [M, K]`` transposed, float32 [N, M].

    Each row is quantised separately.
    """
    values, steps = quantize_rows(rows, asymmetric=asymmetric)
    sums = exact_int(values.astype(np.float64) @ weights.data.astype(np.float64).T)
    return sums.astype(np.float32) * (weight_scales(weights.type, 0) * steps[:, None])


class HybridCell(FloatCell, frozen=True):
    """float32 cell whose products are hybrid.

    Attributes:
        weights: input weights, recurrent weights and projection, int8. They replace the base class's arrays.
    """

    weights: tuple[Tensor, Tensor, Tensor | None] = ()  # type: ignore[assignment]
    asymmetric: bool = False

    def sums(self, x: Array, hidden: Array) -> Array:
        """Return the gates' products, added in the reference's order: bias, products of x, of hidden."""
        own = product(x, self.weights[0], asymmetric=self.asymmetric)
        recurrent = product(hidden, self.weights[1], asymmetric=self.asymmetric)
        return (own if self.norm is not None else self.bias + own) + recurrent

    def projected(self, shown: Array) -> Array:
        assert self.weights[2] is not None
        return product(shown, self.weights[2], asymmetric=self.asymmetric)
