"""Elementwise subtraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from microfold import numerics
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.add import AddParameters, scaled
from microfold.ops.broadcast import check_binary


def sub_parameters(first: Quant, second: Quant, out: ElementType) -> AddParameters:
    """As for an addition, but the reference computes the ratios in float32."""
    assert out.quant is not None
    left_shift = 15 if out.dtype is DType.INT16 else 20
    first_scale, second_scale = np.float32(first.scale), np.float32(second.scale)
    common = np.float32(2) * max(first_scale, second_scale)
    result = common / (np.float32(1 << left_shift) * np.float32(out.quant.scale))
    return AddParameters(
        left_shift,
        numerics.quantize_multiplier(float(first_scale / common)),
        numerics.quantize_multiplier(float(second_scale / common)),
        numerics.quantize_multiplier(float(result)),
    )


@register
@dataclass(frozen=True)
class Sub(Op):
    """Difference of two values, broadcast as numpy does."""

    name: ClassVar[str] = "sub"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST

    out: ElementType

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        return check_binary("sub", first, second, self.out)

    def reference(self, first: Tensor, second: Tensor) -> Array:
        if first.type.quant is None or second.type.quant is None:
            with np.errstate(over="ignore"):
                return (first.data - second.data).astype(first.data.dtype)
        parameters = sub_parameters(first.type.quant, second.type.quant, self.out)
        difference = scaled(first, parameters.left_shift, parameters.first).astype(np.int64)
        difference = difference - scaled(second, parameters.left_shift, parameters.second)
        return numerics.requantize(difference.astype(np.int32), 0, parameters.output, self.out)
