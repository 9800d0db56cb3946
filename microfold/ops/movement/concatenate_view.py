"""Concatenation without a copy."""

from __future__ import annotations

import math
from typing import ClassVar

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.movement.concatenate import Concatenate


@register
class ConcatenateView(Op, frozen=True):
    """Concatenation without a copy: its operands are computed directly into their parts of the result.

    The axes before `axis` must have size 1, so that each operand is one block of memory.
    """

    name: ClassVar[str] = "concatenate_view"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    is_view: ClassVar[bool] = True
    is_concat_view: ClassVar[bool] = True
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    axis: int

    def infer(self, *values: TensorType) -> TensorType:
        result = Concatenate(self.axis).infer(*values)
        require(
            math.prod(result.shape[: self.axis]) == 1,
            f"concatenate_view: axes before axis {self.axis} must have size 1; the result is {result}",
        )
        return result

    def reference(self, *values: Tensor) -> Array:
        return Concatenate(self.axis).reference(*values)
