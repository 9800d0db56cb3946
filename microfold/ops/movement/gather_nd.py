"""Selection of slices by tuples of indices."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Shape, Tensor, TensorType

INDEX_TYPES = (DType.INT16, DType.INT32, DType.INT64)


def check_positions(op: str, indices: TensorType, shape: Shape) -> tuple[Shape, Shape]:
    """Check the type rule of positions in a value of a shape: tuples along the last axis of the indices.

    Returns:
        The axes that enumerate the tuples, and the axes of the slice that each tuple selects.
    """
    require(
        indices.dtype in INDEX_TYPES and indices.quant is None,
        f"{op}: indices must be int16, int32 or int64; they are {indices.dtype.value}",
    )
    require(
        indices.rank >= 1 and 1 <= indices.shape[-1] <= len(shape),
        f"{op}: the last axis of the indices must have 1 to {len(shape)} elements, one for each of the "
        f"first axes of {list(shape)}; the indices are {indices}",
    )
    return indices.shape[:-1], shape[indices.shape[-1] :]


@register
class GatherNd(Op, frozen=True):
    """Slices of ``x`` at positions along its first axes: tuples in the last axis of ``indices``.

    For an index out of range, the nearest slice is used; the references stop with an error.
    """

    name: ClassVar[str] = "gather_nd"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        counted, rest = check_positions("gather_nd", indices, x.shape)
        require(x.size > 0, f"gather_nd: {x} has no elements")
        require(x.quant is None or x.quant.axis is None, "gather_nd: per-channel values are not supported")
        return x.with_shape((*counted, *rest))

    def reference(self, x: Tensor, indices: Tensor) -> Array:
        depth = indices.type.shape[-1]
        last = np.array(x.type.shape[:depth]) - 1
        nearest = np.clip(indices.data.astype(np.int64), 0, last)
        return np.asarray(x.data[tuple(np.moveaxis(nearest, -1, 0))])
