"""RELU, RELU6 and RELU_N1_TO_1 that also change the quantisation."""

from __future__ import annotations

import math
from typing import ClassVar

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import QUANTIZED, check_unary


@register
class Relu(Op, frozen=True):
    """Value requantised, then clamped to real bounds, which may be infinite.

    If both quantisations are equal, and for floating point, `Clip` is used instead.
    """

    name: ClassVar[str] = "relu"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE
    open_ended: ClassVar[tuple[str, ...]] = ("minimum", "maximum")

    minimum: float
    maximum: float
    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(self.minimum <= self.maximum, f"relu: {self.minimum} must not exceed {self.maximum}")
        result = check_unary("relu", x, self.out, QUANTIZED)
        assert x.quant is not None
        self.multiplier(x.quant)  # raises an error if there is no multiplier
        return result

    def multiplier(self, x: Quant) -> Multiplier:
        """Return the multiplier of ``scale_in / scale_out``: in double for RELU, else in float32 (LiteRT)."""
        assert self.out.quant is not None
        if math.isfinite(self.maximum):
            return numerics.litert_multiplier(x.scale, self.out.quant.scale)
        return numerics.effective_multiplier([x.scale], self.out.quant.scale)

    def bounds(self) -> tuple[int, int]:
        """Return the bounds in the output's integers."""
        low, high = self.out.dtype.range
        if math.isfinite(self.minimum):
            low = numerics.quantize(self.minimum, self.out)
        if math.isfinite(self.maximum):
            high = numerics.quantize(self.maximum, self.out)
        return low, high

    def reference(self, x: Tensor) -> Array:
        assert x.type.quant is not None
        result = numerics.requantize(x.data, x.type.quant.zero_point, self.multiplier(x.type.quant), self.out)
        return numerics.clamp(result, *self.bounds(), self.out.dtype)
