"""Elementwise right shift of integers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register
from microfold.ir.types import Array, DType
from microfold.ops.elementwise.plain_binary import INTEGERS, PlainBinary


@register
class RightShift(PlainBinary, frozen=True):
    """Arithmetic right shift of ``first`` by ``second`` bits, which is clamped to [0, bits - 1]."""

    name: ClassVar[str] = "right_shift"
    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def integers(self, first: Array, second: Array) -> Array:
        return first >> np.clip(second, 0, 8 * self.out.dtype.itemsize - 1)
