"""Fully connected layer with activations quantised at run time, and weights quantised by blocks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops import hybrid
from microfold.ops.accumulate import exact_int


@register
class BlockwiseFullyConnected(Op, frozen=True):
    """``x [N, K]`` from `dynamic_quantize` times int8 ``weights [M, K]`` transposed, to float32 [N, M].

    A block is a group of `length` neighbouring weights of a unit, with a scale in ``scales [M, K / length]``.
    The sums of blocks are scaled one after the other, in float32, then by the row's step s::

        (sum0 * scales[m, 0] + sum1 * scales[m, 1] + ...) * s + bias[m]

    LiteRT (in XNNPACK's kernels for these layers) instead sums products with activations that still have
    their zero point, and subtracts ``zero_point * (scales[m, 0] * sum of weights + ...)`` at the end. The
    result is the same number with another rounding, whose error is larger if the zero point is far from 0.

    Attributes:
        length: number of weights in a block.
    """

    name: ClassVar[str] = "blockwise_fully_connected"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    length: int

    def infer(
        self, x: TensorType, weights: TensorType, bias: TensorType, steps: TensorType, scales: TensorType
    ) -> TensorType:
        require(
            x.rank == 2 and weights.rank == 2 and x.shape[1] == weights.shape[1],
            f"blockwise_fully_connected: needs [N, K] and weights [M, K]; they are {x} and {weights}",
        )
        units, depth = weights.shape
        require(
            self.length > 0 and depth % self.length == 0,
            f"blockwise_fully_connected: {depth} inputs must divide into blocks of {self.length}",
        )
        hybrid.check_operands(self.name, x, weights, bias, steps, axis=0, depth=self.length)
        require(
            weights.quant is None,
            f"blockwise_fully_connected: the weights must have no other scale; got {weights}",
        )
        require(
            (scales.dtype, scales.shape) == (DType.FLOAT32, (units, depth // self.length)),
            f"blockwise_fully_connected: scales must be float32[{units},{depth // self.length}]; they are "
            f"{scales}",
        )
        return TensorType(DType.FLOAT32, (x.shape[0], units))

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor, steps: Tensor, scales: Tensor) -> Array:
        rows = x.data.reshape(x.type.shape[0], -1, self.length).astype(np.float64)
        blocks = weights.data.reshape(weights.type.shape[0], -1, self.length).astype(np.float64)
        sums = exact_int(np.einsum("nbk,mbk->nmb", rows, blocks)).astype(np.float32)
        acc = np.zeros(sums.shape[:2], np.float32)
        for block in range(sums.shape[2]):
            acc += sums[..., block] * scales.data[:, block]
        return acc * hybrid.per_row(steps.data, 2) + bias.data

    def macs(self, x: TensorType, weights: TensorType, *_: TensorType) -> int:
        return x.shape[0] * weights.size
