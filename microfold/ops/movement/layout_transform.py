"""Conversion between layouts."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir import layout as layouts
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Tensor, TensorType


@register
class LayoutTransform(Op, frozen=True):
    """Copy of the elements in another layout, see `microfold.ir.layout`, if a transpose is not sufficient.

    Attributes:
        source: layout of the operand, e.g. ``NHWC``.
        target: layout of the result, e.g. ``NCHW4c``.
    """

    name: ClassVar[str] = "layout_transform"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    source: str
    target: str

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.quant is None or x.quant.axis is None, "layout_transform: per-channel values are not supported"
        )
        return x.with_shape(layouts.between(self.source, self.target, x.shape, self.name).shape)

    def reference(self, x: Tensor) -> Array:
        return layouts.between(self.source, self.target, x.type.shape).apply(x.data)
