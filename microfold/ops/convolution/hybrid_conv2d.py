"""Two-dimensional convolution of activations quantised at run time, with integer weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops import hybrid
from microfold.ops.accumulate import exact_int
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.window import Padding, Pair, Window


@register
class HybridConv2D(Op, frozen=True):
    """Convolution of NHWC integers from `dynamic_quantize` with int8 OHWI filters, to float32.

    ``filter`` is [OC, KH, KW, IC / groups], quantised per tensor or per output channel (axis 0). With the
    image's step s and the filters' scales w, the result is::

        (sum * w[c]) * s + bias[c]       if scales differ, or the convolution is grouped
        sum * (s * w) + bias[c]          if all filters have one scale

    The order of operations is that of LiteRT's `HybridConvPerChannel`
    (tensorflow/lite/kernels/internal/reference/conv.h) and of the scaling in `EvalHybrid`
    (tensorflow/lite/kernels/conv.cc), all in float32.
    """

    name: ClassVar[str] = "hybrid_conv2d"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    strides: Pair
    dilations: Pair
    padding: Padding

    @property
    def _shape(self) -> Conv2D:
        """Convolution with the same geometry on float32."""
        return Conv2D(self.strides, self.dilations, self.padding, ElementType(DType.FLOAT32))

    def window(self, weights: TensorType) -> Window:
        return self._shape.window(weights)

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType, steps: TensorType) -> TensorType:
        image, filters = (TensorType(DType.FLOAT32, t.shape) for t in (x, weights))
        result = self._shape.infer(image, filters, bias)
        depth = weights.size // weights.shape[0]
        hybrid.check_hybrid(self.name, x, weights, bias, steps, axis=0, depth=depth)
        return result

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor, steps: Tensor) -> Array:
        sums = self._shape.sums(x.data.astype(np.float64), weights.data)
        acc = exact_int(sums).astype(np.float32)
        scales, step = hybrid.weight_scales(weights.type, 0), hybrid.per_row(steps.data, 4)
        if scales_first(x.type, weights.type):
            return (acc * scales) * step + bias.data
        return acc * (step * scales) + bias.data

    def macs(self, x: TensorType, weights: TensorType, bias: TensorType, steps: TensorType) -> int:
        return self.infer(x, weights, bias, steps).size * (weights.size // weights.shape[0])


def scales_first(x: TensorType, weights: TensorType) -> bool:
    """Return whether sums are multiplied first by the weights' scale, then by the step."""
    return not hybrid.has_common_scale(weights) or weights.shape[3] != x.shape[3]
