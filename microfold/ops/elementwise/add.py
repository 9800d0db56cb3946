"""Elementwise addition."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import check_binary


class AddParameters(NamedTuple):
    """Fixed-point parameters of a quantised addition.

    Both inputs are shifted left by `left_shift`, scaled to a common scale, added, and scaled to the output's
    scale.
    """

    left_shift: int
    first: Multiplier
    second: Multiplier
    output: Multiplier


def add_parameters(first: Quant, second: Quant, out: ElementType) -> AddParameters:
    """Return the reference's parameters (in double): the common scale is twice the larger input scale.

    Raises:
        TypeRuleError: there are none, because the reference asserts that multipliers are less than 1.
    """
    assert out.quant is not None
    left_shift = 15 if out.dtype is DType.INT16 else 20
    common = numerics.effective_scale([2, max(first.scale, second.scale)])
    divisor = numerics.effective_scale([1 << left_shift, out.quant.scale])
    return AddParameters(
        left_shift,
        numerics.effective_multiplier([first.scale], common),
        numerics.effective_multiplier([second.scale], common),
        numerics.effective_multiplier([common], divisor, limit=1),
    )


@register
class Add(Op, frozen=True):
    """Sum of two values, broadcast as in numpy."""

    name: ClassVar[str] = "add"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST
    takes_infinities: ClassVar[bool] = True

    out: ElementType

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        result = check_binary("add", first, second, self.out)
        if first.quant is not None and second.quant is not None and self.out.quant is not None:
            add_parameters(first.quant, second.quant, self.out)  # raises an error if there is no multiplier
        return result

    def reference(self, first: Tensor, second: Tensor) -> Array:
        if first.type.dtype.is_float or first.type.quant is None:
            with np.errstate(over="ignore"):
                return (first.data + second.data).astype(first.data.dtype)
        assert second.type.quant is not None
        assert self.out.quant is not None
        parameters = add_parameters(first.type.quant, second.type.quant, self.out)
        total = scaled(first, parameters.left_shift, parameters.first).astype(np.int64)
        total = (total + scaled(second, parameters.left_shift, parameters.second)).astype(np.int32)
        result = numerics.multiply_by_quantized_multiplier(total, *parameters.output)
        return numerics.clamp(
            result.astype(np.int64) + self.out.quant.zero_point, *self.out.dtype.range, self.out.dtype
        )


def scaled(x: Tensor, left_shift: int, multiplier: Multiplier) -> Array:
    """Return a centred input on the common scale, int32."""
    assert x.type.quant is not None
    shifted = (x.data.astype(np.int32) - np.int32(x.type.quant.zero_point)) << left_shift
    return numerics.multiply_by_quantized_multiplier(shifted, *multiplier)
