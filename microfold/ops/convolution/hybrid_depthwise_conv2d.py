"""Depthwise convolution of activations quantised at run time, with integer weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops import hybrid
from microfold.ops.accumulate import exact_int
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.window import Padding, Pair, Window


@register
class HybridDepthwiseConv2D(Op, frozen=True):
    """Depthwise convolution of NHWC integers from `dynamic_quantize` with int8 filters, to float32.

    ``filter`` is [1, KH, KW, IC * multiplier], quantised per tensor or per output channel (axis 3). With the
    image's step s and the filters' scales w, the result is ``sum * (w[c] * s) + bias[c]``, all in float32, as
    in LiteRT's `DepthwiseConvHybridPerChannel`
    (tensorflow/lite/kernels/internal/reference/integer_ops/depthwise_conv.h).
    """

    name: ClassVar[str] = "hybrid_depthwise_conv2d"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    strides: Pair
    dilations: Pair
    padding: Padding

    @property
    def _shape(self) -> DepthwiseConv2D:
        """Convolution with the same geometry on float32."""
        return DepthwiseConv2D(self.strides, self.dilations, self.padding, ElementType(DType.FLOAT32))

    def window(self, weights: TensorType) -> Window:
        return self._shape.window(weights)

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType, steps: TensorType) -> TensorType:
        image, filters = (TensorType(DType.FLOAT32, t.shape) for t in (x, weights))
        result = self._shape.infer(image, filters, bias)
        depth = weights.shape[1] * weights.shape[2]
        hybrid.check_hybrid(self.name, x, weights, bias, steps, axis=3, depth=depth)
        return result

    def reference(self, x: Tensor, weights: Tensor, bias: Tensor, steps: Tensor) -> Array:
        sums = self._shape.sums(x.data.astype(np.float64), weights.data)
        acc = exact_int(sums).astype(np.float32)
        factors = hybrid.weight_scales(weights.type, 3) * hybrid.per_row(steps.data, 4)
        return acc * factors + bias.data

    def macs(self, x: TensorType, weights: TensorType, bias: TensorType, steps: TensorType) -> int:
        return self.infer(x, weights, bias, steps).size * weights.shape[1] * weights.shape[2]
