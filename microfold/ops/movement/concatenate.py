"""Concatenation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Tensor, TensorType


@register
class Concatenate(Op, frozen=True):
    """Values with the same element type, one after the other along an axis."""

    name: ClassVar[str] = "concatenate"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    axis: int

    def infer(self, *values: TensorType) -> TensorType:
        require(len(values) > 0, "concatenate: needs at least one operand")
        first = values[0]
        require(0 <= self.axis < first.rank, f"concatenate: axis {self.axis} must be in [0, {first.rank})")
        for value in values[1:]:
            require(
                value.element == first.element,
                f"concatenate: all operands must have one element type; they have {first.element} "
                f"and {value.element}",
            )
            require(
                value.rank == first.rank and self._others(value) == self._others(first),
                f"concatenate: shapes must agree except along axis {self.axis}; they are {first} and {value}",
            )
        total = sum(value.shape[self.axis] for value in values)
        return first.with_shape((*first.shape[: self.axis], total, *first.shape[self.axis + 1 :]))

    def _others(self, x: TensorType) -> tuple[int, ...]:
        return (*x.shape[: self.axis], -1, *x.shape[self.axis + 1 :])

    def reference(self, *values: Tensor) -> Array:
        return np.concatenate([value.data for value in values], axis=self.axis)
