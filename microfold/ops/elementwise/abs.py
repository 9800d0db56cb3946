"""Absolute value."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary


@register
class Abs(Op, frozen=True):
    """``|x|``, requantised."""

    name: ClassVar[str] = "abs"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        result = check_unary("abs", x, self.out)
        if x.quant is not None and not x.dtype.is_float:
            self.multiplier(x.quant)  # raises an error if there is no multiplier
        return result

    def multiplier(self, x: Quant) -> Multiplier:
        """Return the multiplier of ``scale_in / scale_out``, computed in double."""
        assert self.out.quant is not None
        return numerics.effective_multiplier([x.scale], self.out.quant.scale)

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            return np.abs(x.data)
        assert x.type.quant is not None
        magnitude = np.abs(x.data.astype(np.int64) - x.type.quant.zero_point)
        return numerics.requantize(magnitude, 0, self.multiplier(x.type.quant), self.out)
