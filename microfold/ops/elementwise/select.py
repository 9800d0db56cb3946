"""Elementwise selection between two values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import broadcast_shape, check_alike


@register
class Select(Op, frozen=True):
    """``first`` if the condition is true, else ``second``; all operands broadcast as in numpy."""

    name: ClassVar[str] = "select"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    def infer(self, condition: TensorType, first: TensorType, second: TensorType) -> TensorType:
        require(condition.dtype is DType.BOOL, f"select: the condition must be bool; it is {condition}")
        chosen = check_alike("select", first, second)
        return chosen.with_shape(broadcast_shape("select", condition, first, second))

    def reference(self, condition: Tensor, first: Tensor, second: Tensor) -> Array:
        return np.where(condition.data, first.data, second.data)
