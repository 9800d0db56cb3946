"""Fully connected layer with activations quantised at run time, and integer weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops import hybrid
from microfold.ops.accumulate import exact_int


@register
class HybridFullyConnected(Op, frozen=True):
    """``x [N, K]`` from `dynamic_quantize` times int8 ``weights [M, K]`` transposed, to float32 [N, M].

    Weights are quantised per tensor or per unit (axis 0). With the row's step s and the weights' scales w,
    the result is ``sum * (w[m] * s) + bias[m]``, all in float32, as in LiteRT's
    `PortableMatrixBatchVectorMultiplyAccumulate`
    (tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc).
    """

    name: ClassVar[str] = "hybrid_fully_connected"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType, steps: TensorType) -> TensorType:
        require(
            x.rank == 2 and weights.rank == 2 and x.shape[1] == weights.shape[1],
            f"hybrid_fully_connected: needs an input [N, K] and weights [M, K]; they are {x} and {weights}",
        )
        hybrid.check_hybrid(self.name, x, weights, bias, steps, axis=0, depth=x.shape[1])
        return TensorType(DType.FLOAT32, (x.shape[0], weights.shape[0]))

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor, steps: Tensor) -> Array:
        acc = exact_int(x.data.astype(np.float64) @ weights.data.astype(np.float64).T).astype(np.float32)
        factors = hybrid.weight_scales(weights.type, 0) * hybrid.per_row(steps.data, 2)
        return acc * factors + bias.data

    def macs(self, x: TensorType, weights: TensorType, _bias: TensorType, _steps: TensorType) -> int:
        return x.shape[0] * weights.size
