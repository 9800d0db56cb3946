"""Elementwise squared difference."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.add import AddParameters, scaled
from microfold.ops.elementwise.binary_rule import check_binary


def squared_difference_parameters(first: Quant, second: Quant, out: ElementType) -> AddParameters:
    """Return parameters with a common input scale, twice the larger one, and the scale of its square."""
    assert out.quant is not None
    left_shift = 0 if out.dtype is DType.INT16 else 7
    common = numerics.effective_scale([2, max(first.scale, second.scale)])
    divisor = numerics.effective_scale([1 << (2 * left_shift), out.quant.scale])
    return AddParameters(
        left_shift,
        numerics.effective_multiplier([first.scale], common),
        numerics.effective_multiplier([second.scale], common),
        numerics.effective_multiplier([common, common], divisor),
    )


@register
class SquaredDifference(Op, frozen=True):
    """``(first - second)^2``, broadcast as in numpy."""

    name: ClassVar[str] = "squared_difference"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST

    out: ElementType

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        result = check_binary("squared_difference", first, second, self.out)
        if first.quant is not None and second.quant is not None and self.out.quant is not None:
            squared_difference_parameters(
                first.quant, second.quant, self.out
            )  # raises an error if there is no multiplier
        return result

    def reference(self, first: Tensor, second: Tensor) -> Array:
        if first.type.quant is None or second.type.quant is None:
            with np.errstate(over="ignore"):
                difference = first.data - second.data
                return (difference * difference).astype(first.data.dtype)
        parameters = squared_difference_parameters(first.type.quant, second.type.quant, self.out)
        difference = scaled(first, parameters.left_shift, parameters.first).astype(np.int64)
        difference = difference - scaled(second, parameters.left_shift, parameters.second)
        square = (difference * difference).astype(np.int32)  # wraps around at 32 bits
        return numerics.requantize(square, 0, parameters.output, self.out)
