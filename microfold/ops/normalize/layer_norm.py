"""Layer normalisation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class LayerNorm(Op, frozen=True):
    """``(x - mean(x)) / sqrt(variance(x) + epsilon) * gamma + beta`` over the last axes, float32.

    ``gamma`` and ``beta`` have the shape of these axes.

    Attributes:
        axis: first of these axes.
    """

    name: ClassVar[str] = "layer_norm"

    axis: int
    epsilon: float

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        require(0 <= self.axis < x.rank, f"layer_norm: the axis must be in [0, {x.rank}); it is {self.axis}")
        require(self.epsilon >= 0, f"layer_norm: epsilon must not be negative; it is {self.epsilon}")
        require(
            x.dtype is DType.FLOAT32 and x.size > 0,
            f"layer_norm: the input must be float32 and have elements; it is {x}",
        )
        normalized = TensorType(DType.FLOAT32, x.shape[self.axis :])
        for what, type in (("gamma", gamma), ("beta", beta)):
            require(type == normalized, f"layer_norm: {what} must be {normalized}; it is {type}")
        return x

    def axes(self, x: TensorType) -> tuple[int, ...]:
        """Return the axes over which the mean is computed."""
        return tuple(range(self.axis, x.rank))

    def reference(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Array:
        # In float32, in the same steps as `simplify_inference`.
        axes = self.axes(x.type)
        with np.errstate(all="ignore"):
            centred = x.data - x.data.mean(axis=axes, keepdims=True, dtype=np.float32)
            variance = (centred * centred).mean(axis=axes, keepdims=True, dtype=np.float32)
            inverse = np.float32(1) / np.sqrt(variance + np.float32(self.epsilon))
            return (centred * inverse * gamma.data + beta.data).astype(np.float32)
