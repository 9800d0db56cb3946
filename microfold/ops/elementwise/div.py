"""Elementwise division."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import register
from microfold.ir.types import Array
from microfold.ops.elementwise.float_binary import FloatBinary


@register
class Div(FloatBinary, frozen=True):
    """Quotient of two float32 values, broadcast as in numpy."""

    name: ClassVar[str] = "div"

    def function(self, first: Array, second: Array) -> Array:
        return first / second
