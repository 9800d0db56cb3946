"""Reductions that keep the quantisation: maximum, minimum, product."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Shape, Tensor, TensorType

DTYPES = (DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT16, DType.FLOAT32)


def check_reduction(
    op: str,
    x: TensorType,
    axes: tuple[int, ...],
    keep_dims: bool,
    out: DType,
    dtypes: tuple[DType, ...] = DTYPES,
) -> Shape:
    """Check the type rule of reductions: distinct, sorted axes in range; no empty ones.

    Returns:
        The shape of the result.
    """
    require(
        tuple(sorted(set(axes))) == axes and all(0 <= axis < x.rank for axis in axes),
        f"{op}: axes must be distinct, sorted and in [0, {x.rank}); they are {list(axes)}",
    )
    require(x.size > 0, f"{op}: {x} has no elements")
    require(
        x.dtype in dtypes and out is x.dtype,
        f"{op}: {x.dtype.value} to {out.value} is not supported",
    )
    if keep_dims:
        return tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    return tuple(n for axis, n in enumerate(x.shape) if axis not in axes)


class _Reduce(Op, frozen=True):
    pattern: ClassVar[Pattern] = Pattern.REDUCTION

    dtypes: ClassVar[tuple[DType, ...]] = DTYPES

    axes: tuple[int, ...]
    keep_dims: bool

    def infer(self, x: TensorType) -> TensorType:
        shape = check_reduction(self.name, x, self.axes, self.keep_dims, x.dtype, self.dtypes)
        return x.with_shape(shape)


@register
class ReduceMax(_Reduce, frozen=True):
    """Largest element over axes; for bool, whether any is true."""

    name: ClassVar[str] = "reduce_max"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL, DType.UINT8, *DTYPES)
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    def reference(self, x: Tensor) -> Array:
        return np.asarray(x.data.max(axis=self.axes, keepdims=self.keep_dims))


@register
class ReduceMin(_Reduce, frozen=True):
    """Smallest element over axes; for bool, whether all are true."""

    name: ClassVar[str] = "reduce_min"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.BOOL, DType.UINT8, *DTYPES)
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    def reference(self, x: Tensor) -> Array:
        return np.asarray(x.data.min(axis=self.axes, keepdims=self.keep_dims))


@register
class ReduceProd(_Reduce, frozen=True):
    """Product over axes, for unquantised values."""

    name: ClassVar[str] = "reduce_prod"

    def infer(self, x: TensorType) -> TensorType:
        require(x.quant is None, "reduce_prod: quantised values are not supported")
        return super().infer(x)

    def reference(self, x: Tensor) -> Array:
        return np.asarray(x.data.prod(axis=self.axes, keepdims=self.keep_dims, dtype=x.data.dtype))
