"""Rounding of real numbers to the steps of a quantisation."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.unary_rule import check_unary

MAX_BITS = 16


class Steps(NamedTuple):
    """Possible results: numbers from `minimum` to `maximum` in steps of `scale`; all are float32 values."""

    minimum: float
    maximum: float
    scale: float


@register
class FakeQuantize(Op, frozen=True):
    """Nearest of the 2^bits steps of a range, which is shifted so that one step is 0; halves round up.

    NaN counts as the lowest number. All steps of the computation are in float32.

    Source:
    https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/kernels/internal/quantization_util.cc

    Attributes:
        minimum, maximum: limits of the range.
        bits: number of bits, from 1 to 16.
        narrow: whether the lowest step is excluded.
    """

    name: ClassVar[str] = "fake_quantize"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE

    minimum: float
    maximum: float
    bits: int
    narrow: bool

    def infer(self, x: TensorType) -> TensorType:
        lowest = 2 if self.narrow else 1
        require(
            lowest <= self.bits <= MAX_BITS,
            f"fake_quantize: bits must be in [{lowest}, {MAX_BITS}]; they are {self.bits}",
        )
        steps = self.steps()
        is_range = self.minimum < self.maximum and all(map(math.isfinite, steps))
        require(
            is_range and steps.scale >= float(np.finfo(np.float32).tiny),
            f"fake_quantize: minimum must be below maximum, and steps between them must be normal float32 "
            f"numbers; they are {self.minimum:g}, {self.maximum:g}, and {steps.scale:g}",
        )
        return check_unary(self.name, x, ElementType(DType.FLOAT32), (DType.FLOAT32,))

    def steps(self) -> Steps:
        """Return the possible results."""
        one = np.float32(1)
        first, last = one if self.narrow else np.float32(0), np.float32((1 << self.bits) - 1)
        with np.errstate(all="ignore"):
            minimum, maximum = np.float32(self.minimum), np.float32(self.maximum)
            scale = (maximum - minimum) / (last - first)
            zero = np.clip(first - minimum / scale, first, last)
            zero = np.float32(np.floor(np.float64(zero) + 0.5))
            return Steps(float((first - zero) * scale), float((last - zero) * scale), float(scale))

    def reference(self, x: Tensor) -> Array:
        minimum, maximum, scale = (np.float32(number) for number in self.steps())
        value = np.where(x.data > minimum, x.data, minimum)
        value = np.where(value < maximum, value, maximum)
        steps = (value - minimum) * (np.float32(1) / scale)
        return np.floor(steps.astype(np.float64) + 0.5).astype(np.float32) * scale + minimum
