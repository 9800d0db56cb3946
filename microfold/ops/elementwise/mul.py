"""Elementwise multiplication."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import DTYPES, check_binary


@register
class Mul(Op, frozen=True):
    """Product of two values, broadcast as in numpy."""

    name: ClassVar[str] = "mul"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST

    out: ElementType

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        result = check_binary("mul", first, second, self.out, (*DTYPES, DType.UINT32))
        if first.quant is not None and second.quant is not None and self.out.quant is not None:
            self.multiplier(first.quant, second.quant)  # raises an error if there is no multiplier
        return result

    def multiplier(self, first: Quant, second: Quant) -> Multiplier:
        """Return the multiplier of ``scale_1 * scale_2 / scale_out``, computed in double."""
        assert self.out.quant is not None
        return numerics.effective_multiplier([first.scale, second.scale], self.out.quant.scale)

    def reference(self, first: Tensor, second: Tensor) -> Array:
        if first.type.quant is None or second.type.quant is None:
            with np.errstate(over="ignore"):
                return (first.data * second.data).astype(first.data.dtype)
        product = (first.data.astype(np.int64) - first.type.quant.zero_point) * (
            second.data.astype(np.int64) - second.type.quant.zero_point
        )
        return numerics.requantize(product, 0, self.multiplier(first.type.quant, second.type.quant), self.out)
