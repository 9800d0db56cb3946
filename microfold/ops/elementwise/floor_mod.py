"""Elementwise remainder of floor division."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register
from microfold.ir.types import Array, DType
from microfold.ops.elementwise.plain_binary import PlainBinary, divisor


@register
class FloorMod(PlainBinary, frozen=True):
    """Remainder of floor division, which has the divisor's sign. The remainder of an integer by 0 is 0.

    For floats, it is the exact remainder of division towards zero, plus the divisor if the signs differ.
    """

    name: ClassVar[str] = "floor_mod"
    dtypes: ClassVar[tuple[DType, ...]] = (
        DType.INT8,
        DType.INT16,
        DType.INT32,
        DType.INT64,
        DType.FLOAT32,
    )

    def floats(self, first: Array, second: Array) -> Array:
        remainder = np.fmod(first, second)
        return np.where((remainder != 0) & ((second < 0) != (remainder < 0)), remainder + second, remainder)

    def integers(self, first: Array, second: Array) -> Array:
        return np.where(second == 0, 0, first % divisor(second))
