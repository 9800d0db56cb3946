"""Average and maximum pooling."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.layout import NHWC
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.image import from_nhwc, from_nhwc_type, nhwc_type, to_nhwc
from microfold.ops.window import Padding, Pair, Window


class _Pool2D(Op, frozen=True):
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE
    dtypes: ClassVar[tuple[DType, ...]] = (DType.INT8, DType.INT16, DType.FLOAT16, DType.FLOAT32)

    size: Pair
    strides: Pair
    padding: Padding
    layout: str = NHWC

    @property
    def window(self) -> Window:
        return Window(self.size, self.strides, (1, 1), self.padding)

    def infer(self, x: TensorType) -> TensorType:
        x = nhwc_type(self.name, x, self.layout)
        require(
            x.dtype in self.dtypes,
            f"{self.name}: {x.dtype.value} is not supported",
        )
        for (before, after), size in zip(self.padding, self.size, strict=True):
            require(
                before < size and after < size,
                f"{self.name}: padding must be smaller than the window {self.size}; it is {self.padding}",
            )
        self.window.check(x)
        rows, columns = self.window.output_size(x.shape[1], x.shape[2])
        result = x.with_shape((x.shape[0], rows, columns, x.shape[3]))
        return from_nhwc_type(self.name, result, self.layout)

    def operations(self, x: TensorType) -> int:
        return self.infer(x).size * self.size[0] * self.size[1]

    def reference(self, x: Tensor) -> Array:
        return from_nhwc(self.pooled(to_nhwc(x, self.layout)), self.layout)

    def pooled(self, x: Tensor) -> Array:
        """Return the result for an NHWC image."""
        raise NotImplementedError


@register
class AveragePool2D(_Pool2D, frozen=True):
    """Mean over the part of each window that is inside the image.

    For integers, the sum is divided by the count, rounded half away from zero, in the input's quantisation.
    uint8 differs from int8 with the same numbers minus 128: its halves are always rounded up.
    """

    name: ClassVar[str] = "average_pool2d"
    dtypes: ClassVar[tuple[DType, ...]] = (DType.UINT8, *_Pool2D.dtypes)

    def pooled(self, x: Tensor) -> Array:
        wide = x.data.astype(np.float32 if x.type.dtype.is_float else np.int64)
        total = self.window.patches(wide, fill=0).sum(axis=(4, 5), dtype=wide.dtype)
        inside = np.ones((1, *x.type.shape[1:3], 1), wide.dtype)
        count = self.window.patches(inside, fill=0).sum(axis=(4, 5))
        if x.type.dtype.is_float:
            return (total / count).astype(x.data.dtype)
        half = count // 2
        magnitude = (np.abs(total) + half) // count
        return (np.sign(total) * magnitude).astype(x.data.dtype)


@register
class MaxPool2D(_Pool2D, frozen=True):
    """Largest element of each window. Padding has no effect."""

    name: ClassVar[str] = "max_pool2d"
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    def pooled(self, x: Tensor) -> Array:
        lowest = -np.inf if x.type.dtype.is_float else x.type.dtype.range[0]
        return self.window.patches(x.data, fill=lowest).max(axis=(4, 5)).astype(x.data.dtype)
