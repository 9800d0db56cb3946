"""Replacement of a part of a value at a computed position."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class DynamicUpdateSlice(Op, frozen=True):
    """``x`` with ``update`` from ``start`` on, which is clamped so that the update is inside."""

    name: ClassVar[str] = "dynamic_update_slice"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    def infer(self, x: TensorType, update: TensorType, start: TensorType) -> TensorType:
        require(
            x.element == update.element,
            f"dynamic_update_slice: x and update must have one element type; they have {x.element} and "
            f"{update.element}",
        )
        require(
            x.rank == update.rank
            and all(1 <= n <= whole for n, whole in zip(update.shape, x.shape, strict=True)),
            f"dynamic_update_slice: the update must fit into {x}; it is {update}",
        )
        require(
            start.dtype in (DType.INT32, DType.INT64) and start.quant is None and start.shape == (x.rank,),
            f"dynamic_update_slice: the start must be int32 or int64 [{x.rank}]; it is {start}",
        )
        require(
            x.quant is None or x.quant.axis is None,
            "dynamic_update_slice: per-channel values are not supported",
        )
        return x

    def reference(self, x: Tensor, update: Tensor, start: Tensor) -> Array:
        result = x.data.copy()
        spare = np.array(x.type.shape, np.int64) - update.type.shape
        first = np.clip(start.data.astype(np.int64), 0, spare)
        part = tuple(slice(a, a + n) for a, n in zip(first.tolist(), update.type.shape, strict=True))
        result[part] = update.data
        return result
