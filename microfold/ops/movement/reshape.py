"""Change of a value's shape, as a view."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from microfold.ir.node import Node, Value
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Shape, Tensor, TensorType


@register
class Reshape(Op, frozen=True):
    """View of the elements, in their order, under another shape."""

    name: ClassVar[str] = "reshape"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    is_view: ClassVar[bool] = True
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    shape: Shape

    def infer(self, x: TensorType) -> TensorType:
        require(
            math.prod(self.shape) == x.size,
            f"reshape: {x} has {x.size} elements; {list(self.shape)} needs {math.prod(self.shape)}",
        )
        require(x.quant is None or x.quant.axis is None, "reshape: a per-channel quantised value has no view")
        return x.with_shape(self.shape)

    def reference(self, x: Tensor) -> Array:
        return x.data.reshape(self.shape)


def before_reshapes(value: Value, producers: Mapping[Value, Node]) -> Value:
    """Return the value before a chain of reshapes, which has the same elements in the same order."""
    while (node := producers.get(value)) is not None and isinstance(node.op, Reshape) and not node.epilogue:
        value = node.operands[0]
    return value
