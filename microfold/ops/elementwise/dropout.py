"""Dropout, which has no effect outside of training."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Tensor, TensorType


@register
class Dropout(Op, frozen=True):
    """Unchanged input. In training, a fraction `rate` of the elements is set to zero."""

    name: ClassVar[str] = "dropout"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    rate: float

    def infer(self, x: TensorType) -> TensorType:
        require(0 <= self.rate < 1, f"dropout: the rate must be in [0, 1); it is {self.rate}")
        return x

    def reference(self, x: Tensor) -> Array:
        return x.data
