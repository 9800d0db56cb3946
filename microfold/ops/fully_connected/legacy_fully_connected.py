"""Fully connected layer with the legacy uint8 quantisation, represented as int8."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops import accumulate
from microfold.ops.fully_connected.fully_connected import FullyConnected


@register
class LegacyFullyConnected(Op, frozen=True):
    """``x [N, K]`` times ``weights [M, K]`` transposed, plus ``bias [M]``: [N, M]; int8, per tensor.

    It differs from `FullyConnected` in the requantisation: LiteRT multiplies sums by the effective scale in
    double and rounds once, halves away from zero.
    """

    name: ClassVar[str] = "legacy_fully_connected"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    out: ElementType

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> TensorType:
        result = FullyConnected(self.out).infer(x, weights, bias)
        require(
            (x.dtype, weights.dtype) == (DType.INT8, DType.INT8),
            f"{self.name}: needs int8 activations and weights; they are {x} and {weights}",
        )
        assert weights.quant is not None
        require(
            weights.quant.axis is None, f"{self.name}: the weights must have one scale; they are {weights}"
        )
        return result

    def scale(self, x: TensorType, weights: TensorType) -> float:
        """Return the real scale of sums."""
        assert x.quant is not None and weights.quant is not None and self.out.quant is not None
        return numerics.effective_scale([x.quant.scale, weights.quant.scale], self.out.quant.scale)

    def rescaled(self, sums: Array, scale: float) -> Array:
        """Return sums requantised to int8."""
        assert self.out.quant is not None
        rounded = numerics.round_half_away_array(sums.astype(np.float64) * scale)
        return numerics.clamp(rounded + self.out.quant.zero_point, *self.out.dtype.range, self.out.dtype)

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Array:
        sums = accumulate.exact_int(accumulate.centred(x) @ accumulate.centred(weights).T)
        sums = sums + (bias.data if bias is not None else 0)
        return self.rescaled(sums.astype(np.int32), self.scale(x.type, weights.type))

    def macs(self, x: TensorType, weights: TensorType, _bias: TensorType | None = None) -> int:
        return x.shape[0] * weights.size
