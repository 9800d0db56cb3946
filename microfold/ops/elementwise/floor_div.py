"""Elementwise division, rounded down."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register
from microfold.ir.types import Array, DType
from microfold.ops.elementwise.plain_binary import PlainBinary, divisor


@register
class FloorDiv(PlainBinary, frozen=True):
    """Largest integer not above the quotient. An integer divided by 0 is 0.

    The quotient of floats is computed in double, as in the reference, because a float32 quotient could be
    rounded up to an integer.
    """

    name: ClassVar[str] = "floor_div"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32)

    def floats(self, first: Array, second: Array) -> Array:
        return np.floor(first.astype(np.float64) / second.astype(np.float64))

    def integers(self, first: Array, second: Array) -> Array:
        return np.where(second == 0, 0, first // divisor(second))
