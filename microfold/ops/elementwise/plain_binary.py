"""Base class of functions of two unscaled numbers, floats or integers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import REGISTRY, Op, Pattern, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.binary_rule import broadcast_shape

# Element types of bitwise operators.
INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.UINT32)


class PlainBinary(Op, frozen=True):
    """Function of two values of one element type, broadcast as in numpy.

    Integers are used without regard to their scale, as in the reference. An operator of the file format with
    the same name in capitals is imported as this operator.

    Class attributes:
        dtypes: supported element types.
    """

    pattern: ClassVar[Pattern] = Pattern.BROADCAST
    any_zero_point: ClassVar[bool] = True
    dtypes: ClassVar[tuple[DType, ...]]

    out: ElementType

    def floats(self, first: Array, second: Array) -> Array:
        """Return the function's value on float32 arrays. The caller rounds it to float32."""
        raise NotImplementedError

    def integers(self, first: Array, second: Array) -> Array:
        """Return the function's value on int64 arrays. The caller wraps it to the element type."""
        raise NotImplementedError

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        shape = broadcast_shape(self.name, first, second)
        require(
            first.dtype is second.dtype is self.out.dtype,
            f"{self.name}: operands and result must have one element type; they are {first.dtype.value}, "
            f"{second.dtype.value} and {self.out.dtype.value}",
        )
        require(
            first.dtype in self.dtypes,
            f"{self.name}: {first.dtype.value} is not supported; "
            f"{', '.join(dtype.value for dtype in self.dtypes)} are",
        )
        for x in (first, second, self.out):
            require(
                x.quant is None or x.quant.axis is None,
                f"{self.name}: per-channel values are not supported",
            )
        return TensorType(self.out.dtype, shape, self.out.quant)

    def reference(self, first: Tensor, second: Tensor) -> Array:
        with np.errstate(all="ignore"):
            if first.type.dtype.is_float:
                return np.asarray(self.floats(first.data, second.data)).astype(np.float32)
            wide = self.integers(first.data.astype(np.int64), second.data.astype(np.int64))
            return np.asarray(wide).astype(self.out.dtype.numpy)


def plain_binary_operators() -> list[type[PlainBinary]]:
    """Return all registered operators of this kind."""
    return [op for op in REGISTRY.values() if issubclass(op, PlainBinary)]


def divisor(x: Array) -> Array:
    """Return integers to divide by: 1 replaces 0, at which the references stop with an error."""
    return np.where(x == 0, 1, x)
