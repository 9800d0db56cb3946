"""Largest elements along an axis, in order."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class TopK(Op, frozen=True):
    """The `count` largest elements along the last axis, the largest first, and their indices.

    Of equal elements, the one with the lower index comes first.
    """

    name: ClassVar[str] = "top_k"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    count: int
    dtype: DType

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(x.rank >= 1, f"top_k: needs an axis; the operand is {x}")
        require(
            1 <= self.count <= x.shape[-1],
            f"top_k: the count must be in [1, {x.shape[-1]}], the elements along the last axis; it is "
            f"{self.count}",
        )
        require(
            self.dtype in (DType.INT16, DType.INT32),
            f"top_k: indices must be int16 or int32; they are {self.dtype.value}",
        )
        require(
            x.shape[-1] - 1 <= self.dtype.range[1],
            f"top_k: indices up to {x.shape[-1] - 1} must be {self.dtype.value}",
        )
        require(
            x.dtype not in (DType.BOOL, DType.INT4, DType.FLOAT16), f"top_k: {x.dtype.value} is not supported"
        )
        require(x.quant is None or x.quant.axis is None, "top_k: per-channel values are not supported")
        shape = (*x.shape[:-1], self.count)
        return x.with_shape(shape), TensorType(self.dtype, shape)

    def reference(self, x: Tensor) -> tuple[Array, Array]:
        # In reverse, so that a stable ascending sort has the lower of equal indices last.
        order = x.type.shape[-1] - 1 - np.argsort(x.data[..., ::-1], axis=-1, kind="stable")
        order = order[..., ::-1][..., : self.count]
        return np.take_along_axis(x.data, order, axis=-1), order.astype(self.dtype.numpy)
