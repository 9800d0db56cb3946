"""Copy."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, Tensor, TensorType


@register
class Copy(Op, frozen=True):
    """Copy of the elements in separate storage."""

    name: ClassVar[str] = "copy"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: Tensor) -> Array:
        return x.data.copy()
