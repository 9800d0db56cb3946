"""Standardisation of rows to mean 0 and variance 1."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class Standardize(Op, frozen=True):
    """``(x - mean(x)) / sqrt(variance(x) + epsilon) * scale + shift`` along the last axis, float32.

    It remains of a layer normalisation after the next layer has absorbed as much of scale and shift as
    possible. Both are one number for all elements, or one for each element of a row.
    """

    name: ClassVar[str] = "standardize"

    epsilon: float

    def infer(self, x: TensorType, scale: TensorType, shift: TensorType) -> TensorType:
        require(self.epsilon >= 0, f"standardize: epsilon must not be negative; it is {self.epsilon}")
        require(
            x.dtype is DType.FLOAT32 and x.rank > 0 and x.size > 0,
            f"standardize: the input must be float32 and have elements; it is {x}",
        )
        for what, type in (("scale", scale), ("shift", shift)):
            fits = type.dtype is DType.FLOAT32 and type.shape in ((), x.shape[-1:])
            require(fits, f"standardize: {what} must be float32[] or float32[{x.shape[-1]}]; it is {type}")
        return x

    def reference(self, x: Tensor, scale: Tensor, shift: Tensor) -> Array:
        with np.errstate(all="ignore"):
            centred = x.data - x.data.mean(axis=-1, keepdims=True, dtype=np.float32)
            variance = (centred * centred).mean(axis=-1, keepdims=True, dtype=np.float32)
            inverse = np.float32(1) / np.sqrt(variance + np.float32(self.epsilon))
            return (centred * inverse * scale.data + shift.data).astype(np.float32)

    def operations(self, x: TensorType, scale: TensorType, shift: TensorType) -> int:
        del scale, shift
        return 8 * x.size
