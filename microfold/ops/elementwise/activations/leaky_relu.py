"""Leaky rectified linear unit."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary


class LeakyReluParameters(NamedTuple):
    """Multipliers of centred inputs. The slope's sign is stored separately."""

    identity: Multiplier
    slope: Multiplier
    slope_is_negative: bool


@register
class LeakyRelu(Op, frozen=True):
    """``x`` if it is not negative, else ``alpha * x``."""

    name: ClassVar[str] = "leaky_relu"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    alpha: float
    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        result = check_unary("leaky_relu", x, self.out)
        if x.quant is not None and not x.dtype.is_float:
            self.parameters(x.quant)  # raises an error if there is no multiplier
        return result

    def parameters(self, x: Quant) -> LeakyReluParameters:
        """Return the multipliers, see `microfold.arithmetic.numerics.effective_scale`."""
        assert self.out.quant is not None
        out_scale = self.out.quant.scale
        return LeakyReluParameters(
            numerics.effective_multiplier([x.scale], out_scale),
            numerics.effective_multiplier([x.scale, abs(self.alpha)], out_scale),
            self.alpha < 0,
        )

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            return np.where(x.data > 0, x.data, x.data * np.float32(self.alpha))
        assert x.type.quant is not None
        assert self.out.quant is not None
        identity, slope, negative = self.parameters(x.type.quant)
        centred = x.data.astype(np.int32) - x.type.quant.zero_point
        below = numerics.multiply_by_quantized_multiplier(centred, *slope).astype(np.int64)
        above = numerics.multiply_by_quantized_multiplier(centred, *identity).astype(np.int64)
        result = np.where(centred >= 0, above, -below if negative else below)
        return numerics.clamp(result + self.out.quant.zero_point, *self.out.dtype.range, self.out.dtype)
