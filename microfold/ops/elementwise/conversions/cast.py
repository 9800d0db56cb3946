"""Conversion of element types."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType


@register
class Cast(Op, frozen=True):
    """Conversion of numbers to another type, without regard to quantisation.

    Floats are truncated towards zero, integers wrap around, and bool is ``x != 0``. A float beyond the
    integer's range saturates, because C leaves the result undefined.
    """

    name: ClassVar[str] = "cast"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    dtype: DType

    def infer(self, x: TensorType) -> TensorType:
        require(DType.INT4 not in (x.dtype, self.dtype), "cast: int4 is not supported")
        return TensorType(self.dtype, x.shape)

    def reference(self, x: Tensor) -> Array:
        if not x.type.dtype.is_float or not self.dtype.is_integer:
            with np.errstate(over="ignore"):
                return x.data.astype(self.dtype.numpy)
        low, high = self.dtype.range
        whole = np.nan_to_num(np.trunc(x.data.astype(np.float64)), nan=0.0)
        # Clipped below the highest integer + 1, so that truncation yields the highest integer.
        return np.clip(whole, low, np.nextafter(float(high) + 1, 0)).astype(self.dtype.numpy)
