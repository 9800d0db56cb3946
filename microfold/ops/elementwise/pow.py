"""Elementwise power."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register
from microfold.ir.types import Array, DType
from microfold.ops.elementwise.plain_binary import PlainBinary


@register
class Pow(PlainBinary, frozen=True):
    """``first`` to the power of ``second``.

    For int32, the product of ``second`` factors wraps around. An exponent below 0 counts as 0; the reference
    stops with an error.
    """

    name: ClassVar[str] = "pow"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.INT32, DType.FLOAT32)

    def floats(self, first: Array, second: Array) -> Array:
        return np.power(first.astype(np.float64), second.astype(np.float64))

    def integers(self, first: Array, second: Array) -> Array:
        base, exponent = np.broadcast_arrays(first.astype(np.int32), np.maximum(second, 0))
        power = np.ones(base.shape, np.int32)
        while exponent.any():
            power = np.where(exponent & 1, power * base, power)
            base, exponent = base * base, exponent >> 1
        return power
