"""Fully connected layer (matrix times constant or variable weights)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, ElementType, Tensor, TensorType
from microfold.ops import accumulate


@register
class FullyConnected(Op, frozen=True):
    """``x [N, K]`` times ``weights [M, K]`` transposed, plus ``bias [M]``: [N, M].

    Quantised weights have one scale and any zero point, or are symmetric per output channel (axis 0).
    """

    name: ClassVar[str] = "fully_connected"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    out: ElementType

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> TensorType:
        require(
            x.rank == 2 and weights.rank == 2 and x.shape[1] == weights.shape[1],
            f"fully_connected: needs an input [N, K] and weights [M, K]; they are {x} and {weights}",
        )
        accumulate.check_accumulation("fully_connected", x, weights, bias, weights.shape[0], self.out)
        if weights.quant is not None and weights.quant.axis is not None:
            require(weights.quant.axis == 0, "fully_connected: weight scales must run along axis 0")
            require(not any(weights.quant.zero_points), "fully_connected: per-channel zero points must be 0")
        return TensorType(self.out.dtype, (x.shape[0], weights.shape[0]), self.out.quant)

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Array:
        if x.type.dtype.is_float:
            # In the reference's order: if terms cancel, the result depends on the order.
            acc = np.zeros((x.type.shape[0], weights.type.shape[0]), np.float32)
            for inputs, factors in zip(accumulate.widened(x).T, accumulate.widened(weights).T, strict=True):
                with np.errstate(over="ignore", invalid="ignore"):
                    acc += inputs[:, None] * factors
            return (acc + (bias.data if bias is not None else np.float32(0))).astype(self.out.dtype.numpy)
        acc = accumulate.centred(x) @ accumulate.centred(weights).T
        return accumulate.finish(acc, x, weights, bias, self.out)

    def macs(self, x: TensorType, weights: TensorType, _bias: TensorType | None = None) -> int:
        return x.shape[0] * weights.size
