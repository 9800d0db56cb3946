"""Two-dimensional depthwise convolution."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.layout import NHWC
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, ElementType, Tensor, TensorType
from microfold.ops import accumulate
from microfold.ops.image import from_nhwc, from_nhwc_type, nhwc_type, to_nhwc
from microfold.ops.window import Padding, Pair, Window


@register
class DepthwiseConv2D(Op, frozen=True):
    """Convolution of each channel of an image in `layout` with its own filters.

    ``filter`` is [1, KH, KW, IC * multiplier]; output channel ``c * multiplier + m`` reads input channel
    ``c``. Quantised filters are symmetric, per tensor or per output channel (axis 3).
    """

    name: ClassVar[str] = "depthwise_conv2d"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    strides: Pair
    dilations: Pair
    padding: Padding
    out: ElementType
    layout: str = NHWC

    def window(self, weights: TensorType) -> Window:
        return Window((weights.shape[1], weights.shape[2]), self.strides, self.dilations, self.padding)

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> TensorType:
        x = nhwc_type("depthwise_conv2d", x, self.layout)
        require(
            weights.rank == 4 and weights.shape[0] == 1,
            f"depthwise_conv2d: the filter must be [1, KH, KW, channels]; it is {weights}",
        )
        batch, height, width, channels = x.shape
        filters = weights.shape[3]
        require(
            channels > 0 and filters % channels == 0,
            f"depthwise_conv2d: filters must be a multiple of the {channels} channels; they are {filters}",
        )
        accumulate.check_accumulation("depthwise_conv2d", x, weights, bias, filters, self.out)
        accumulate.check_symmetric("depthwise_conv2d", weights, axis=3)
        self.window(weights).check(x)
        rows, columns = self.window(weights).output_size(height, width)
        result = TensorType(self.out.dtype, (batch, rows, columns, filters), self.out.quant)
        return from_nhwc_type("depthwise_conv2d", result, self.layout)

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Array:
        x = to_nhwc(x, self.layout)
        acc = self.sums(accumulate.widened(x), weights.data)
        return from_nhwc(accumulate.finish(acc, x, weights, bias, self.out), self.layout)

    def sums(self, image: Array, filters: Array) -> Array:
        """Return the sums of products, [N, OH, OW, channels] of the image's element type.

        Args:
            image: image in NHWC, padded with 0.
            filters: [1, KH, KW, channels].
        """
        _, kernel_height, kernel_width, count = filters.shape
        window = Window((kernel_height, kernel_width), self.strides, self.dilations, self.padding)
        patches = window.patches(image, fill=0)  # [N, OH, OW, IC, KH, KW]
        batch, rows, columns, channels = patches.shape[:4]
        kernel = filters[0].reshape(kernel_height, kernel_width, channels, count // channels)
        kernel = kernel.astype(image.dtype)
        acc = np.empty((batch, rows, columns, count), image.dtype)
        for block in window.blocks(patches):
            sums = np.einsum("nyxchw,hwcm->nyxcm", patches[block], kernel, optimize=True)
            acc[block] = sums.reshape(acc[block].shape)
        return acc

    def macs(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> int:
        return self.infer(x, weights, bias).size * weights.shape[1] * weights.shape[2]
