"""Transposed two-dimensional convolution."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.ir.layout import NHWC
from microfold.ir.limits import MAX_ELEMENTS
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, ElementType, Shape, Tensor, TensorType
from microfold.ops import accumulate
from microfold.ops.image import from_nhwc, from_nhwc_type, nhwc_type, to_nhwc
from microfold.ops.window import Pair


@register
class TransposeConv2D(Op, frozen=True):
    """Transposed convolution: each pixel of an image in `layout` adds multiples of OHWI filters.

    Input pixel (y, x) contributes to output pixel
    ``(y * strides[0] - offset[0] + ky, x * strides[1] - offset[1] + kx)``. Contributions outside of `size`
    are dropped. Quantised filters are symmetric, per tensor or per output channel (axis 0).

    Attributes:
        size: output (height, width).
        offset: number of rows and columns cut off at the top and the left.
    """

    name: ClassVar[str] = "transpose_conv2d"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    strides: Pair
    offset: Pair
    size: Pair
    out: ElementType
    layout: str = NHWC

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> TensorType:
        x = nhwc_type("transpose_conv2d", x, self.layout)
        require(weights.rank == 4, f"transpose_conv2d: the filter must be OHWI (rank 4); it is {weights}")
        require(
            weights.shape[3] == x.shape[3],
            f"transpose_conv2d: the filter must have {x.shape[3]} channels; it has {weights.shape[3]}",
        )
        require(
            min(*self.strides, *self.size, *weights.shape) >= 1 and min(self.offset) >= 0,
            f"transpose_conv2d: strides {self.strides}, size {self.size} and filter {weights} must be "
            f"positive, the offset {self.offset} not negative",
        )
        # The last step of the filters can lead out of the canvas.
        batch, height, width, filters = self.canvas(x, weights)
        steps = [n * stride for n, stride in zip(x.shape[1:3], self.strides, strict=True)]
        elements = batch * filters * max(height, steps[0]) * max(width, steps[1])
        require(
            elements <= MAX_ELEMENTS,
            f"transpose_conv2d: the untrimmed result can have at most {MAX_ELEMENTS} elements; strides "
            f"{self.strides}, filter {weights}, size {self.size} and offset {self.offset} make it {elements}",
        )
        accumulate.check_accumulation("transpose_conv2d", x, weights, bias, weights.shape[0], self.out)
        accumulate.check_symmetric("transpose_conv2d", weights, axis=0)
        result = TensorType(self.out.dtype, (x.shape[0], *self.size, weights.shape[0]), self.out.quant)
        return from_nhwc_type("transpose_conv2d", result, self.layout)

    def canvas(self, x: TensorType, weights: TensorType) -> Shape:
        """Return NHWC extents that contain the untrimmed result for an NHWC image, and the output."""
        batch, rows, columns, _ = x.shape
        filters, *window, _ = weights.shape
        height, width = (
            max((n - 1) * stride + k, offset + size)
            for n, stride, k, offset, size in zip(
                (rows, columns), self.strides, window, self.offset, self.size, strict=True
            )
        )
        return batch, height, width, filters

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Array:
        x = to_nhwc(x, self.layout)
        image = accumulate.widened(x)
        kernel = weights.data.astype(image.dtype)
        _, kernel_height, kernel_width, _ = weights.type.shape
        _, rows, columns, _ = x.type.shape
        top, left = self.offset
        canvas = np.zeros(self.canvas(x.type, weights.type), image.dtype)
        for ky in range(kernel_height):
            for kx in range(kernel_width):
                contribution = np.einsum("nyxc,oc->nyxo", image, kernel[:, ky, kx], optimize=True)
                canvas[
                    :,
                    ky : ky + rows * self.strides[0] : self.strides[0],
                    kx : kx + columns * self.strides[1] : self.strides[1],
                ][:, :rows, :columns] += contribution
        acc = canvas[:, top : top + self.size[0], left : left + self.size[1]]
        return from_nhwc(accumulate.finish(acc, x, weights, bias, self.out), self.layout)

    def operations(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> int:
        return self.macs(x, weights, bias) + math.prod(
            self.canvas(nhwc_type(self.name, x, self.layout), weights)
        )

    def macs(self, x: TensorType, weights: TensorType, _bias: TensorType | None = None) -> int:
        return x.size // max(weights.shape[3], 1) * weights.size
