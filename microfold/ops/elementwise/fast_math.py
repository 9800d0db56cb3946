"""Approximations of real functions for relaxed numerics: float32 arithmetic with the same steps as kernels.

The relative error of `exp` is less than 4e-7 for x in [-87, 88]; beyond these limits, the result is constant.
The absolute error of `logistic` and `tanh`, which use it, is less than 4e-7.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.normalize.softmax import Softmax

EXP_RANGE = (-87.0, 88.0)  # here, the result and the factor 2^n are normal numbers

_ROUND = np.float32(3 << 22)  # adding it rounds to an integer
# ln 2 in two parts. Products of the first part with small integers are exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(2.12194440e-4)
# exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2, with the least relative error: 1.05e-7.
_POLYNOMIAL = tuple(np.float32(c) for c in (0.00831250101, 0.0418903306, 0.166671157, 0.499992311))


def exp(x: Array) -> Array:
    """Return ``2^n exp(r)``, with n the integer nearest to ``x / ln 2``."""
    limited = np.clip(x, np.float32(EXP_RANGE[0]), np.float32(EXP_RANGE[1]))
    whole = (limited * np.float32(1.44269504) + _ROUND) - _ROUND
    rest = limited - whole * _LN2_HIGH + whole * _LN2_LOW
    total = np.full_like(rest, 0)
    for coefficient in _POLYNOMIAL:
        total = total * rest + coefficient
    power = np.ldexp(np.float32(1), np.nan_to_num(whole).astype(np.int32))
    return ((total * rest * rest + rest + np.float32(1)) * power).astype(np.float32)


def logistic(x: Array) -> Array:
    """Return ``1 / (1 + exp(-x))``."""
    return (np.float32(1) / (np.float32(1) + exp(-x))).astype(np.float32)


def tanh(x: Array) -> Array:
    """Return ``1 - 2 / (1 + exp(2 x))``."""
    return (np.float32(1) - np.float32(2) / (np.float32(1) + exp(np.float32(2) * x))).astype(np.float32)


@register
class FastSoftmax(Softmax, frozen=True):
    """float32 softmax with the `exp` of this module."""

    name: ClassVar[str] = "fast_softmax"

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype is DType.FLOAT32, f"fast_softmax: the input must be float32; it is {x.dtype.value}")
        return super().infer(x)

    def reference(self, x: Tensor) -> Array:
        values = exp((x.data - x.data.max(axis=-1, keepdims=True)) * np.float32(self.beta))
        return (values / values.sum(axis=-1, keepdims=True, dtype=np.float32)).astype(np.float32)
