"""Mean and sum over axes."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import QUANTIZED, require_per_tensor
from microfold.ops.reduce.reduce import DTYPES, check_reduction


class _SumOrMean(Op, frozen=True):
    pattern: ClassVar[Pattern] = Pattern.REDUCTION
    dtypes: ClassVar[tuple[DType, ...]] = DTYPES

    axes: tuple[int, ...]
    keep_dims: bool
    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        shape = check_reduction(self.name, x, self.axes, self.keep_dims, self.out.dtype, self.dtypes)
        if x.dtype in QUANTIZED:
            require_per_tensor(self.name, input=x, output=self.out)
            assert x.quant is not None
            self.rescale(x.quant)  # raises an error if there is no multiplier
        return TensorType(self.out.dtype, shape, self.out.quant)

    def count(self, x: TensorType) -> int:
        """Return the number of elements in each sum."""
        return math.prod(x.shape[axis] for axis in self.axes)

    def multiplier(self, x: Quant, count: int) -> Multiplier:
        """Return the multiplier of the sum of `count` centred elements."""
        raise NotImplementedError

    def rescale(self, x: Quant) -> Multiplier:
        """Return the multiplier of ``scale_in / scale_out``, computed in double."""
        assert self.out.quant is not None
        return numerics.effective_multiplier([x.scale], self.out.quant.scale)

    def sum(self, x: Tensor) -> Array:
        return x.data.sum(axis=self.axes, keepdims=self.keep_dims, dtype=np.int64)

    def quantized(self, x: Tensor) -> Array:
        count = self.count(x.type)
        assert x.type.quant is not None
        # The sum has 32 bits, as in the reference.
        total = self.sum(x).astype(np.int32).astype(np.int64) - x.type.quant.zero_point * count
        return numerics.requantize(total, 0, self.multiplier(x.type.quant, count), self.out)


@register
class Mean(_SumOrMean, frozen=True):
    """Mean over axes.

    For quantised values, it is the sum minus the zero points, times one multiplier, see `multiplier`. For
    plain integers, it is the sum, which wraps around at 64 bits, divided with rounding towards zero.
    """

    name: ClassVar[str] = "mean"

    def multiplier(self, x: Quant, count: int) -> Multiplier:
        """Return ``scale_in / scale_out / count``: the mantissa is shifted left, then divided."""
        mantissa, shift = self.rescale(x)
        left = min(count.bit_length() - 1, 32, 31 + shift)
        return Multiplier((mantissa << left) // count, shift - left)

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype in QUANTIZED:
            return self.quantized(x)
        if x.type.dtype.is_integer:
            total, count = self.sum(x), self.count(x.type)
            # Rounded down, then up again if a negative sum has a remainder.
            mean = total // count + ((total < 0) & (total % count != 0))
            return np.asarray(mean).astype(x.data.dtype)
        # In the reference's order: if terms cancel, the result depends on the order.
        first = np.moveaxis(x.data, self.axes, range(len(self.axes)))
        total = np.cumsum(first.reshape(self.count(x.type), -1), axis=0, dtype=np.float32)[-1]
        mean = (total / np.float32(self.count(x.type))).astype(x.data.dtype)
        return mean.reshape(self.infer(x.type).shape)


@register
class Sum(_SumOrMean, frozen=True):
    """Sum over axes."""

    name: ClassVar[str] = "sum"

    def multiplier(self, x: Quant, count: int) -> Multiplier:
        """Return ``scale_in / scale_out``, independent of the count."""
        del count
        return self.rescale(x)

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype in QUANTIZED:
            return self.quantized(x)
        return np.asarray(
            x.data.sum(axis=self.axes, keepdims=self.keep_dims, dtype=x.data.dtype), x.data.dtype
        )
