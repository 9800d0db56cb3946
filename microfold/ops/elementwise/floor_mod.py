"""Elementwise remainder of a division that is rounded down."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register
from microfold.ir.types import Array, DType
from microfold.ops.elementwise.plain_binary import PlainBinary, divisor
from microfold.support.frozen import frozen


@register
@frozen
class FloorMod(PlainBinary):
    """What is left of a division that is rounded down: it has the divisor's sign. Integers by 0 leave 0.

    Floats: the exact remainder of the division towards zero, and the divisor added to it where the signs
    differ.
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
