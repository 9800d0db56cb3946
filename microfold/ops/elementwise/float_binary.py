"""Base class of functions of two float32 values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import REGISTRY, Op, Pattern, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import check_binary


class FloatBinary(Op, frozen=True):
    """``function(first, second)`` of two float32 values, broadcast as in numpy.

    An operator of the file format with the same name in capitals and without options is imported as this
    operator.
    """

    pattern: ClassVar[Pattern] = Pattern.BROADCAST

    out: ElementType

    def function(self, first: Array, second: Array) -> Array:
        """Return the function's value on float32 arrays. The caller rounds it to float32."""
        raise NotImplementedError

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        dtype = first.dtype
        require(dtype is DType.FLOAT32, f"{self.name}: {dtype.value} is not supported; float32 is")
        return check_binary(self.name, first, second, self.out)

    def reference(self, first: Tensor, second: Tensor) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.function(first.data, second.data)).astype(np.float32)


def float_binary_operators() -> list[type[FloatBinary]]:
    """Return all registered operators of this kind."""
    return [op for op in REGISTRY.values() if issubclass(op, FloatBinary)]
