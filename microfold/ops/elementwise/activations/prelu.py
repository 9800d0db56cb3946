"""Parametric rectified linear unit."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import check_binary


@register
class Prelu(Op, frozen=True):
    """``x`` if it is not negative, else ``alpha * x``; alpha broadcasts."""

    name: ClassVar[str] = "prelu"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST

    out: ElementType

    def infer(self, x: TensorType, alpha: TensorType) -> TensorType:
        result = check_binary("prelu", x, alpha, self.out)
        if x.quant is not None and alpha.quant is not None and self.out.quant is not None:
            self.multipliers(x.quant, alpha.quant)  # raises an error if there is no multiplier
        return result

    def multipliers(self, x: Quant, alpha: Quant) -> tuple[Multiplier, Multiplier]:
        """Return the multipliers of non-negative inputs, and of products with alpha; computed in double."""
        assert self.out.quant is not None
        return (
            numerics.effective_multiplier([x.scale], self.out.quant.scale),
            numerics.effective_multiplier([x.scale, alpha.scale], self.out.quant.scale),
        )

    def reference(self, x: Tensor, alpha: Tensor) -> Array:
        if x.type.quant is None or alpha.type.quant is None:
            return np.where(x.data >= 0, x.data, x.data * alpha.data).astype(x.data.dtype)
        identity, slope = self.multipliers(x.type.quant, alpha.type.quant)
        centred = x.data.astype(np.int64) - x.type.quant.zero_point
        product = centred * (alpha.data.astype(np.int64) - alpha.type.quant.zero_point)
        above = numerics.requantize(centred, 0, identity, self.out)
        return np.where(centred >= 0, above, numerics.requantize(product, 0, slope, self.out))
