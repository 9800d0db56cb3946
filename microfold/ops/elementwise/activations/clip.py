"""Clamping to real bounds, like fused RELU, RELU6 and RELU_N1_TO_1."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, ElementType, Tensor, TensorType


@register
class Clip(Op, frozen=True):
    """Value clamped to real bounds, which may be infinite, without a change of quantisation.

    For integers, the bounds are quantised with the value's own scale and zero point.
    """

    name: ClassVar[str] = "clip"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE
    takes_infinities: ClassVar[bool] = True
    open_ended: ClassVar[tuple[str, ...]] = ("minimum", "maximum")

    minimum: float
    maximum: float

    def infer(self, x: TensorType) -> TensorType:
        require(self.minimum <= self.maximum, f"clip: {self.minimum} must not exceed {self.maximum}")
        require(x.dtype.is_float or x.quant is not None, f"clip: {x} must be quantised or floating point")
        return x

    def bounds(self, element: ElementType) -> tuple[int, int]:
        """Return the bounds as integers of a quantised type."""
        low, high = element.dtype.range
        if math.isfinite(self.minimum):
            low = numerics.quantize(self.minimum, element)
        if math.isfinite(self.maximum):
            high = numerics.quantize(self.maximum, element)
        return low, high

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            wide = x.data.astype(np.float32, copy=False)
            return np.clip(wide, np.float32(self.minimum), np.float32(self.maximum)).astype(x.data.dtype)
        return numerics.clamp(x.data, *self.bounds(x.type.element), x.type.dtype)
