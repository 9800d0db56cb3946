"""Sums of slices at positions in a value of zeros."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Shape, Tensor, TensorType
from microfold.ops.movement.gather_nd import check_positions

_DTYPES = (
    *(DType.BOOL, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.UINT32, DType.INT64),
    DType.FLOAT32,
)


@register
class ScatterNd(Op, frozen=True):
    """Zeros of a shape, to which ``updates`` are added at the positions in ``indices``.

    Slices for the same position are added in their order. Integers wrap around; a bool is true if any update
    is. Elements are used without regard to their scale. A slice with a position out of range is ignored; the
    reference stops with an error.
    """

    name: ClassVar[str] = "scatter_nd"
    any_zero_point: ClassVar[bool] = True

    shape: Shape

    def infer(self, indices: TensorType, updates: TensorType) -> TensorType:
        counted, rest = check_positions("scatter_nd", indices, self.shape)
        require(min(self.shape) >= 1, f"scatter_nd: the shape must be positive; it is {list(self.shape)}")
        require(
            updates.shape == (*counted, *rest),
            f"scatter_nd: updates must be {[*counted, *rest]} for indices {indices} in {list(self.shape)}; "
            f"they are {updates}",
        )
        require(
            updates.dtype in _DTYPES,
            f"scatter_nd: {updates.dtype.value} is not supported; "
            f"{', '.join(dtype.value for dtype in _DTYPES)} are",
        )
        require(
            updates.quant is None or updates.quant.axis is None,
            "scatter_nd: per-channel values are not supported",
        )
        return updates.with_shape(self.shape)

    def reference(self, indices: Tensor, updates: Tensor) -> Array:
        depth = indices.type.shape[-1]
        result = np.zeros(self.shape, updates.data.dtype)
        positions = indices.data.reshape(-1, depth).astype(np.int64)
        slices = updates.data.reshape(len(positions), *self.shape[depth:])
        inside = ((positions >= 0) & (positions < np.array(self.shape[:depth]))).all(axis=1)
        add = np.logical_or if updates.type.dtype is DType.BOOL else np.add
        with np.errstate(over="ignore", invalid="ignore"):
            add.at(result, tuple(positions[inside].T), slices[inside])
        return result
