"""What hybrid recurrent layers share: products whose activations are quantised for every step."""

from __future__ import annotations

import numpy as np

from microfold.ir.op import require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.accumulate import exact_int
from microfold.ops.elementwise.conversions.dynamic_quantize import quantize_rows
from microfold.ops.hybrid import MAX_DEPTH, weight_scales
from microfold.ops.recurrent.lstm_float import FloatCell
from microfold.support.frozen import frozen


def check_weights(op: str, what: str, weights: TensorType, parts: int) -> None:
    """The type rule of weights that each row of activations is multiplied with.

    Args:
        what: they are.
        parts: of their rows, one behind the other, that have a scale each.

    Raises:
        TypeRuleError: they are not int8 with zero point 0 and such scales.
    """
    quant = weights.quant
    require(
        weights.dtype is DType.INT8
        and quant is not None
        and quant.axis in (None, 0)
        and not any(quant.zero_points),
        f"{op}: {what} must be int8 with zero point 0 and scales for the tensor or along axis 0; {weights}",
    )
    scales = weight_scales(weights, 0).reshape(parts, -1)
    require(
        bool((scales == scales[:, :1]).all()), f"{op}: {what} must have one scale for each of {parts} gates"
    )
    require(
        weights.shape[1] <= MAX_DEPTH,
        f"{op}: a sum may have {MAX_DEPTH} products; of {what} it has {weights.shape[1]}",
    )


def real(type: TensorType) -> TensorType:
    """The type of the real numbers that integers stand for."""
    return TensorType(DType.FLOAT32, type.shape)


def product(rows: Array, weights: Tensor, *, asymmetric: bool) -> Array:
    """``rows [N, K]``, each quantised by itself, times int8 ``weights [M, K]`` transposed, float32 [N, M]."""
    values, steps = quantize_rows(rows, asymmetric=asymmetric)
    sums = exact_int(values.astype(np.float64) @ weights.data.astype(np.float64).T)
    return sums.astype(np.float32) * (weight_scales(weights.type, 0) * steps[:, None])


@frozen(eq=False)
class HybridCell(FloatCell):
    """A cell of float32 whose products are hybrid.

    Attributes:
        weights: input weights, recurrent weights and projection, int8; the arrays of the base are unused.
    """

    weights: tuple[Tensor, Tensor, Tensor | None] = ()  # type: ignore[assignment]
    asymmetric: bool = False

    def sums(self, x: Array, hidden: Array) -> Array:
        """In the reference's order: first the bias, then the input's products, then those of hidden."""
        own = product(x, self.weights[0], asymmetric=self.asymmetric)
        recurrent = product(hidden, self.weights[1], asymmetric=self.asymmetric)
        return (own if self.norm is not None else self.bias + own) + recurrent

    def projected(self, shown: Array) -> Array:
        assert self.weights[2] is not None
        return product(shown, self.weights[2], asymmetric=self.asymmetric)
