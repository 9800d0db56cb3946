"""Elementwise bitwise exclusive or."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import register
from microfold.ir.types import Array, DType
from microfold.ops.elementwise.plain_binary import INTEGERS, PlainBinary


@register
class BitwiseXor(PlainBinary, frozen=True):
    """Bitwise exclusive or of two integers."""

    name: ClassVar[str] = "bitwise_xor"
    dtypes: ClassVar[tuple[DType, ...]] = INTEGERS

    def integers(self, first: Array, second: Array) -> Array:
        return first ^ second
