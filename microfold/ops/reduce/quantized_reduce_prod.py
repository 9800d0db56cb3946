"""Product of int8 and int16 over axes."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import register
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import QUANTIZED, require_per_tensor
from microfold.ops.reduce.reduce import ReduceProd, check_reduction

# LiteRT's 64-bit products shift to the right by at least 8 bits.
MAX_SCALING = 1 << 7


@register
class QuantizedReduceProd(ReduceProd, frozen=True):
    """`ReduceProd` of int8 and int16, as in LiteRT: rescaled after each factor, and once more at the end.

    For n factors, the multiplier is the input's scale divided by the n-th root of the output's scale. The
    product of
    all n multipliers therefore converts the whole product to the output's scale. Elements are multiplied in
    the
    order of the tensor, because each step rounds
    (https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/kernels/internal/reference/reduce.h).
    """

    name: ClassVar[str] = "quantized_reduce_prod"
    dtypes: ClassVar[tuple[DType, ...]] = QUANTIZED

    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        shape = check_reduction(self.name, x, self.axes, self.keep_dims, self.out.dtype, self.dtypes)
        require_per_tensor(self.name, input=x, output=self.out)
        self.multiplier(x)  # raises an error if there is none
        return TensorType(self.out.dtype, shape, self.out.quant)

    def count(self, x: TensorType) -> int:
        """Return the number of factors of each result."""
        return math.prod(x.shape[axis] for axis in self.axes)

    def multiplier(self, x: TensorType) -> Multiplier:
        """Return the multiplier that is applied after each factor."""
        assert x.quant is not None and self.out.quant is not None
        root = math.pow(self.out.quant.scale, 1.0 / self.count(x))
        return numerics.effective_multiplier([x.quant.scale], root, limit=MAX_SCALING)

    def reference(self, x: Tensor) -> Array:
        assert x.type.quant is not None and self.out.quant is not None
        multiplier = self.multiplier(x.type)
        centred = np.moveaxis(x.data, self.axes, range(len(self.axes))).astype(np.int64)
        factors = centred.reshape(self.count(x.type), -1) - x.type.quant.zero_point
        product = factors[0]
        for factor in factors[1:]:
            product = _scaled(product * factor, multiplier)
        result = _scaled(product, multiplier) + self.out.quant.zero_point
        out = numerics.clamp(result, *self.out.dtype.range, self.out.dtype)
        return out.reshape(self.infer(x.type).shape)


def _scaled(product: Array, multiplier: Multiplier) -> Array:
    """Return products scaled in 64 bits and truncated to 32."""
    return numerics.multiply_int64_by_quantized_multiplier(product, *multiplier).astype(np.int64)
