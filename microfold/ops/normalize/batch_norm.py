"""Batch normalisation with the statistics of training."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class BatchNorm(Op, frozen=True):
    """``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` with one of each per channel, float32.

    It is equal to a product and a sum with one constant each (`scale_and_shift`). Importers can leave it to
    `simplify_inference` to replace it by these.

    Attributes:
        axis: axis of the channels.
    """

    name: ClassVar[str] = "batch_norm"

    axis: int
    epsilon: float

    def infer(
        self, x: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType, variance: TensorType
    ) -> TensorType:
        require(0 <= self.axis < x.rank, f"batch_norm: the axis must be in [0, {x.rank}); it is {self.axis}")
        require(self.epsilon >= 0, f"batch_norm: epsilon must not be negative; it is {self.epsilon}")
        require(x.dtype is DType.FLOAT32, f"batch_norm: the input must be float32; it is {x.dtype.value}")
        channels = TensorType(DType.FLOAT32, (x.shape[self.axis],))
        for what, type in (("gamma", gamma), ("beta", beta), ("mean", mean), ("variance", variance)):
            require(type == channels, f"batch_norm: {what} must be {channels}; it is {type}")
        return x

    def scale_and_shift(self, gamma: Array, beta: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the factor and the summand of x, [channels]: computed in double, rounded once."""
        scale = gamma.astype(np.float64) / np.sqrt(variance.astype(np.float64) + self.epsilon)
        return scale.astype(np.float32), (beta - mean * scale).astype(np.float32)

    def reference(self, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Array:
        with np.errstate(all="ignore"):
            parts = self.scale_and_shift(gamma.data, beta.data, mean.data, variance.data)
            along = [-1 if axis == self.axis else 1 for axis in range(x.type.rank)]
            scale, shift = (part.reshape(along) for part in parts)
            return (x.data * scale + shift).astype(np.float32)
