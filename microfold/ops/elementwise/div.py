"""Elementwise division."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import check_binary


@register
@dataclass(frozen=True)
class Div(Op):
    """Quotient of two float32 values, broadcast as numpy does."""

    name: ClassVar[str] = "div"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST

    out: ElementType

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        require(first.dtype is DType.FLOAT32, f"div: {first.dtype.value} is not supported; float32 is")
        return check_binary("div", first, second, self.out)

    def reference(self, first: Tensor, second: Tensor) -> Array:
        with np.errstate(all="ignore"):
            return (first.data / second.data).astype(np.float32)
