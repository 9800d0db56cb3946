"""Division by the Euclidean norm along the last axis."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.arithmetic import fixed_point, numerics
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary

EPSILON = 1e-6  # lower bound of the norm
OUTPUT_BITS = 7  # int8 results are in units of 2^-7


@register
class L2Normalization(Op, frozen=True):
    """``x / max(norm(x), 1e-6)`` along the last axis. The int8 result has scale 1/128 and zero point 0.

    Attributes:
        legacy: whether int8 represents the legacy uint8 type, for which LiteRT scales to 1/128 before the
            multiplication instead of with it.
    """

    name: ClassVar[str] = "l2_normalization"

    out: ElementType
    legacy: bool = False

    def infer(self, x: TensorType) -> TensorType:
        require(x.rank >= 1, "l2_normalization: the input must have an axis")
        result = check_unary("l2_normalization", x, self.out, (DType.INT8, DType.FLOAT32))
        if x.dtype is DType.INT8:
            quant = self.out.quant
            assert quant is not None
            require(
                math.isclose(quant.scale, 1 / 128, rel_tol=1e-6) and quant.zero_point == 0,
                f"l2_normalization: the int8 result must have scale {1 / 128} and zero point 0; "
                f"they are {quant.scale} and {quant.zero_point}",
            )
        return result

    def reference(self, x: Tensor) -> Array:
        if x.type.dtype.is_float:
            norm = np.sqrt((x.data * x.data).sum(axis=-1, keepdims=True, dtype=np.float32))
            return (x.data / np.maximum(norm, np.float32(EPSILON))).astype(np.float32)
        assert x.type.quant is not None
        centred = x.data.astype(np.int64) - x.type.quant.zero_point
        mantissa, shift = fixed_point.inverse_sqrt((centred * centred).sum(axis=-1, keepdims=True))
        if self.legacy:
            result = numerics.multiply_by_quantized_multiplier(centred << OUTPUT_BITS, mantissa, shift)
        else:
            result = numerics.multiply_by_quantized_multiplier(centred, mantissa, shift + OUTPUT_BITS)
        return numerics.clamp(result, -128, 127, DType.INT8)
