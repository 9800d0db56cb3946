"""Elementwise division of integers, rounded towards zero."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register
from microfold.ir.types import Array, DType
from microfold.ops.elementwise.plain_binary import PlainBinary, divisor


@register
class TruncDiv(PlainBinary, frozen=True):
    """Quotient of two int32 values, rounded towards zero as in C. A value divided by 0 is 0."""

    name: ClassVar[str] = "trunc_div"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.INT32,)

    def integers(self, first: Array, second: Array) -> Array:
        magnitude = np.abs(first) // np.abs(divisor(second))
        return np.where(second == 0, 0, np.where((first < 0) != (second < 0), -magnitude, magnitude))
