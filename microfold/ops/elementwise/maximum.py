"""Elementwise maximum."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import check_alike


@register
class Maximum(Op, frozen=True):
    """Larger of two values of one element type, broadcast as in numpy."""

    name: ClassVar[str] = "maximum"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        return check_alike("maximum", first, second)

    def reference(self, first: Tensor, second: Tensor) -> Array:
        return np.where(first.data > second.data, first.data, second.data)
