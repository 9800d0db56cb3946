"""Two-dimensional convolution."""

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
class Conv2D(Op, frozen=True):
    """Convolution of an image in `layout` with OHWI filters.

    ``filter`` is [OC, KH, KW, IC / groups]. The convolution is grouped if the filter has fewer input channels
    than the image. Quantised filters are symmetric (zero point 0), per tensor or per output channel (axis 0).
    """

    name: ClassVar[str] = "conv2d"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    strides: Pair
    dilations: Pair
    padding: Padding
    out: ElementType
    layout: str = NHWC

    def window(self, weights: TensorType) -> Window:
        return Window((weights.shape[1], weights.shape[2]), self.strides, self.dilations, self.padding)

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> TensorType:
        x = nhwc_type("conv2d", x, self.layout)
        require(weights.rank == 4, f"conv2d: the filter must be OHWI (rank 4); it is {weights}")
        batch, height, width, channels = x.shape
        filters, _, _, depth = weights.shape
        require(
            0 < depth <= channels and channels % depth == 0 and filters % (channels // depth) == 0,
            f"conv2d: the filter's input channels must divide the image's {channels} into groups that divide "
            f"its {filters} filters; they are {depth}",
        )
        accumulate.check_accumulation("conv2d", x, weights, bias, filters, self.out)
        accumulate.check_symmetric("conv2d", weights, axis=0)
        self.window(weights).check(x)
        rows, columns = self.window(weights).output_size(height, width)
        result = TensorType(self.out.dtype, (batch, rows, columns, filters), self.out.quant)
        return from_nhwc_type("conv2d", result, self.layout)

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Array:
        x = to_nhwc(x, self.layout)
        acc = self.sums(accumulate.widened(x), weights.data)
        return from_nhwc(accumulate.finish(acc, x, weights, bias, self.out), self.layout)

    def sums(self, image: Array, filters: Array) -> Array:
        """Return the sums of products, [N, OH, OW, OC] of the image's element type.

        Args:
            image: image in NHWC, padded with 0.
            filters: OHWI.
        """
        count, kernel_height, kernel_width, depth = filters.shape
        window = Window((kernel_height, kernel_width), self.strides, self.dilations, self.padding)
        groups = image.shape[3] // depth
        patches = window.patches(image, fill=0)  # [N, OH, OW, IC, KH, KW]
        batch, rows, columns = patches.shape[:3]
        size = depth * kernel_height * kernel_width
        kernel = filters.transpose(0, 3, 1, 2).reshape(groups, count // groups, size).astype(image.dtype)
        acc = np.empty((batch, rows, columns, count), image.dtype)
        for block in window.blocks(patches):
            matrix = patches[block].reshape(-1, groups, size)
            sums = (
                np.einsum("pgk,gok->pgo", matrix, kernel, optimize=True)
                if groups > 1
                else matrix[:, 0] @ kernel[0].T
            )
            acc[block] = sums.reshape(acc[block].shape)
        return acc

    def macs(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> int:
        return self.infer(x, weights, bias).size * (weights.size // weights.shape[0])
