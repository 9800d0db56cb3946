"""Elementwise subtraction."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, ElementType, Tensor, TensorType
from microfold.ops.elementwise.add import add_parameters, scaled
from microfold.ops.elementwise.binary_rule import check_binary


@register
class Sub(Op, frozen=True):
    """Difference of two values, broadcast as in numpy. Its parameters are the same as for `Add`."""

    name: ClassVar[str] = "sub"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST
    takes_infinities: ClassVar[bool] = True

    out: ElementType

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        result = check_binary("sub", first, second, self.out)
        if first.quant is not None and second.quant is not None and self.out.quant is not None:
            add_parameters(first.quant, second.quant, self.out)  # raises an error if there is no multiplier
        return result

    def reference(self, first: Tensor, second: Tensor) -> Array:
        if first.type.quant is None or second.type.quant is None:
            with np.errstate(over="ignore"):
                return (first.data - second.data).astype(first.data.dtype)
        parameters = add_parameters(first.type.quant, second.type.quant, self.out)
        difference = scaled(first, parameters.left_shift, parameters.first).astype(np.int64)
        difference = difference - scaled(second, parameters.left_shift, parameters.second)
        return numerics.requantize(difference.astype(np.int32), 0, parameters.output, self.out)
