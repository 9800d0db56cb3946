"""Permutation of axes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Tensor, TensorType


@register
class Transpose(Op, frozen=True):
    """Permutation of axes: axis i of the result is axis ``permutation[i]`` of the input."""

    name: ClassVar[str] = "transpose"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    permutation: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(
            sorted(self.permutation) == list(range(x.rank)),
            f"transpose: the permutation must name {x.rank} axes once each; it is {list(self.permutation)}",
        )
        quant = x.quant
        if quant is not None and quant.axis is not None:
            quant = replace(quant, axis=self.permutation.index(quant.axis))
        return TensorType(x.dtype, tuple(x.shape[axis] for axis in self.permutation), quant)

    def reference(self, x: Tensor) -> Array:
        return np.asarray(x.data.transpose(self.permutation), order="C")
